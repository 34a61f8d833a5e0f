#include "sim/tools/collective/worker/collective.h"

#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "golden/half_types.h"
#include "golden/reduction_order.h"
#include "reducer/comm/collective.h"
#include "scenarios/base/hash.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/run_files.h"
#include "sim/tools/collective/ranks.h"
#include "sim/worker/libraries.h"
#include "sim/worker/process_tasks.h"

namespace lockstep {
namespace {

constexpr int64_t kLine = 64;
constexpr const char* kBoardKey = "collective_board";
constexpr const char* kBoardName = "lockstep-collective";

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

[[noreturn]] void refuse_board(const std::string& why) {
  throw CommError(CommFailure::rejected, "rank 0's memory for the inputs: " + why);
}

struct BoardPlace {
  int64_t pid = 0, fd = 0;
};

// "PID FD": two numbers, and nothing that could be a path.
BoardPlace parse_place(const std::string& text) {
  BoardPlace place;
  const char* const end = text.data() + text.size();
  const auto [space, bad_pid] = std::from_chars(text.data(), end, place.pid);
  if (bad_pid != std::errc() || space == end || *space != ' ') refuse_board("it is nowhere");
  const auto [last, bad_fd] = std::from_chars(space + 1, end, place.fd);
  if (bad_fd != std::errc() || last != end || place.pid <= 0 || place.fd < 0)
    refuse_board("it is nowhere");
  return place;
}

template <class Visit>
void for_dtype(const std::string& dtype, Visit visit) {
  if (dtype == "float64") return visit(double{});
  if (dtype == "float16") return visit(Float16{});
  if (dtype == "bfloat16") return visit(Brain16{});
  visit(float{});
}

template <class T>
T rounded(double value) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value);
  else
    return T(static_cast<float>(value));
}

// SplitMix64: a counter in, bits out.
uint64_t mixed(uint64_t counter) {
  uint64_t z = counter * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <class T>
void fill(uint64_t seed, int64_t count, T* out) {
  constexpr double kScales[] = {0x1p-52, 0x1p-53, 0x1p-54, 0x1p-55,
                                0x1p-56, 0x1p-57, 0x1p-58, 0x1p-59};
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = mixed(seed + static_cast<uint64_t>(i));
    const auto mantissa =
        static_cast<double>(static_cast<int64_t>(bits >> 11) - (int64_t{1} << 52));
    out[i] = rounded<T>(mantissa * kScales[bits & 7]);
  }
}

int64_t differing(const std::byte* a, const std::byte* b, int64_t bytes, int64_t width) {
  if (std::memcmp(a, b, static_cast<size_t>(bytes)) == 0) return 0;
  int64_t count = 0;
  for (int64_t at = 0; at < bytes; at += width)
    count += std::memcmp(a + at, b + at, static_cast<size_t>(width)) != 0;
  return count;
}

std::vector<std::string> orders_of(const CollectiveSpec& spec) {
  std::vector<std::string> orders;
  for (const CollectiveGroup& group : spec.groups) {
    const std::string order = spec.adds() ? group.order() : "";
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
  }
  return orders;
}

int64_t in_lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

CollectiveBoard::CollectiveBoard(const CollectiveSpec& spec, int64_t rank, Store& store,
                                 Deadline deadline)
    : spec_(spec),
      rank_(rank),
      orders_(orders_of(spec)),
      slot_bytes_(in_lines(input_bytes(spec.elements.back()))),
      expected_bytes_(in_lines(spec.elements.back() * element_bytes(spec.dtype))),
      bytes_(static_cast<size_t>(slot_bytes_ * spec.world_size +
                                 expected_bytes_ * static_cast<int64_t>(orders_.size()))) {
  if (rank == 0)
    make(store);
  else
    open(store.get(kBoardKey, deadline));
  void* const base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) fail("mmap of the inputs");
  base_ = static_cast<std::byte*>(base);
}

CollectiveBoard::~CollectiveBoard() { ::munmap(base_, bytes_); }

void CollectiveBoard::make(Store& store) {
  fd_.reset(::memfd_create(kBoardName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.valid() || ::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0)
    fail("memory for the inputs");
  ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  store.set(kBoardKey, fmt::format("{} {}", ::getpid(), fd_.get()));
}

// The store is read by all and written by all: what it names is opened only where it is a memory of
// this name and size.
void CollectiveBoard::open(const std::string& where) {
  const auto [pid, number] = parse_place(where);
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
  std::array<char, 64> target{};
  if (::readlink(path.c_str(), target.data(), target.size() - 1) < 0)
    fail("rank 0's memory for the inputs");
  if (std::string_view(target.data()) != fmt::format("/memfd:{} (deleted)", kBoardName))
    refuse_board(path + " is another file");
  fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd_.valid()) fail("rank 0's memory for the inputs");
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0 || static_cast<size_t>(status.st_size) != bytes_)
    refuse_board(path + " has another size");
}

int64_t CollectiveBoard::input_bytes(int64_t elements) const {
  const int64_t parts = spec_.operation == "all_gather" ? spec_.world_size : 1;
  return elements / parts * element_bytes(spec_.dtype);
}

int64_t CollectiveBoard::result_bytes(int64_t elements) const {
  const int64_t parts = spec_.operation == "reduce_scatter" ? spec_.world_size : 1;
  return elements / parts * element_bytes(spec_.dtype);
}

void CollectiveBoard::fill_input(int64_t elements) {
  const uint64_t seed = substream_seed(spec_.seed, "collective", static_cast<uint64_t>(rank_));
  for_dtype(spec_.dtype, [&](auto zero) {
    using T = decltype(zero);
    fill(seed, input_bytes(elements) / static_cast<int64_t>(sizeof(T)),
         reinterpret_cast<T*>(input_of(rank_)));
  });
}

std::byte* CollectiveBoard::expected(size_t group) const {
  const std::string order = spec_.adds() ? spec_.groups[group].order() : "";
  const auto place = std::find(orders_.begin(), orders_.end(), order) - orders_.begin();
  return base_ + spec_.world_size * slot_bytes_ + place * expected_bytes_;
}

template <class T>
void CollectiveBoard::add_inputs(int64_t count) {
  std::vector<const T*> inputs;
  for (int64_t rank = 0; rank < spec_.world_size; ++rank)
    inputs.push_back(reinterpret_cast<const T*>(input_of(rank)));
  for (size_t group = 0; group < spec_.groups.size(); ++group) {
    auto* const sum = reinterpret_cast<T*>(expected(group));
    sum_in_order<T>(spec_.groups[group].order(), inputs, count, sum);
  }
}

// Of an all_to_all every rank expects something else, which lies in the inputs.
void CollectiveBoard::compute_expected(int64_t elements) {
  if (spec_.exchanges()) return;
  if (spec_.adds())
    return for_dtype(spec_.dtype, [&](auto zero) { add_inputs<decltype(zero)>(elements); });
  const int64_t bytes = input_bytes(elements);
  const int64_t ranks = spec_.operation == "broadcast" ? 1 : spec_.world_size;
  for (int64_t rank = 0; rank < ranks; ++rank)
    std::memcpy(expected(0) + rank * bytes, input_of(rank), static_cast<size_t>(bytes));
}

int64_t CollectiveBoard::count_wrong_parts(int64_t bytes, const void* result) const {
  int64_t wrong = 0;
  for (int64_t rank = 0; rank < spec_.world_size; ++rank)
    wrong += differing(input_of(rank) + rank_ * bytes,
                       static_cast<const std::byte*>(result) + rank * bytes, bytes,
                       element_bytes(spec_.dtype));
  return wrong;
}

int64_t CollectiveBoard::count_wrong(size_t group, int64_t elements, const void* result) const {
  const int64_t bytes = result_bytes(elements);
  if (spec_.exchanges()) return count_wrong_parts(bytes / spec_.world_size, result);
  const int64_t at = spec_.operation == "reduce_scatter" ? rank_ * bytes : 0;
  return differing(expected(group) + at, static_cast<const std::byte*>(result), bytes,
                   element_bytes(spec_.dtype));
}

namespace {

constexpr std::chrono::milliseconds kBeat{200};
constexpr int kPoison = 0x5a;

at::ScalarType scalar_type_of(const std::string& dtype) {
  if (dtype == "float64") return at::kDouble;
  if (dtype == "float16") return at::kHalf;
  return dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

Operation operation_of(const std::string& operation) {
  if (operation == "broadcast") return Operation::broadcast;
  if (operation == "reduce_scatter") return Operation::reduce_scatter;
  if (operation == "all_to_all") return Operation::all_to_all;
  return operation == "all_gather" ? Operation::all_gather : Operation::all_reduce;
}

class CollectiveRank {
 public:
  CollectiveRank(const CollectiveSpec& spec, const WorkerTask& task, Control& control);
  void run();
  const std::string& where() const { return where_; }

 private:
  // A communicator with its tensors, as large as they get.
  struct Group {
    std::unique_ptr<Communicator> communicator;
    at::Tensor input, output;  // the same where the operation works in place
  };
  Deadline soon() const { return deadline_after(std::chrono::milliseconds(spec_.timeout_ms)); }
  bool in_place() const { return !spec_.has_parts(); }
  void connect(size_t group);
  void meet() { meeting_->barrier(soon())->wait(); }
  CollectiveCall prepared(size_t group, int64_t elements);
  int64_t iterate(size_t group, int64_t elements, RankRow* row);
  void check_control();
  void measure(size_t size);
  void beat(bool now);

  const CollectiveSpec& spec_;
  const int64_t rank_;
  const std::string file_;
  Control& control_;
  const std::shared_ptr<Store> store_;
  CollectiveBoard board_;
  std::unique_ptr<Communicator> meeting_;
  std::vector<Group> groups_;
  int64_t rows_done_ = 0;
  Deadline last_beat_{};
  std::string where_ = "connecting";  // for an error
};

CollectiveRank::CollectiveRank(const CollectiveSpec& spec, const WorkerTask& task, Control& control)
    : spec_(spec),
      rank_(task.rank),
      file_(rank_file_path(task.run_dir, task.rank)),
      control_(control),
      store_(make_control_store(control)),
      board_(spec, task.rank, *store_, soon()) {
  CommOptions options;
  options.rank = rank_;
  options.world_size = spec.world_size;
  options.prefix = "meeting";
  meeting_ = make_shm_communicator(options, store_, soon());
}

void CollectiveRank::connect(size_t group) {
  const CollectiveGroup& what = spec_.groups[group];
  where_ = "connecting " + what.label();
  CommOptions options;
  options.rank = rank_;
  options.world_size = spec_.world_size;
  options.algorithm = what.algorithm;
  options.prefix = "group" + std::to_string(group);
  Group& made = groups_.emplace_back();
  made.communicator =
      make_process_communicator(what.kind, what.ranks_per_host, options, store_, soon());
  const int64_t width = element_bytes(spec_.dtype), most = spec_.elements.back();
  const at::ScalarType dtype = scalar_type_of(spec_.dtype);
  made.input = made.communicator->allocate(board_.input_bytes(most) / width, dtype);
  made.output = in_place() ? made.input
                           : made.communicator->allocate(board_.result_bytes(most) / width, dtype);
}

// The call of one iteration with its tensors as if nothing had happened yet.
CollectiveCall CollectiveRank::prepared(size_t group, int64_t elements) {
  const int64_t width = element_bytes(spec_.dtype);
  Group& own = groups_[group];
  CollectiveCall call;
  call.input = own.input.narrow(0, 0, board_.input_bytes(elements) / width);
  call.output =
      in_place() ? call.input : own.output.narrow(0, 0, board_.result_bytes(elements) / width);
  if (!in_place()) std::memset(call.output.data_ptr(), kPoison, call.output.nbytes());
  std::memcpy(call.input.data_ptr(), board_.input(), call.input.nbytes());
  call.operation = operation_of(spec_.operation);
  return call;
}

// Returns the number of wrong elements. row: gets the times, if any.
int64_t CollectiveRank::iterate(size_t group, int64_t elements, RankRow* row) {
  CollectiveCall call = prepared(group, elements);
  meet();
  const int64_t begin_ns = now_ns();
  call.deadline = soon();
  forward(*groups_[group].communicator, call)->wait();
  const int64_t end_ns = now_ns();
  if (row != nullptr) {
    row->begin_ns.push_back(begin_ns);
    row->end_ns.push_back(end_ns);
  }
  beat(false);
  return board_.count_wrong(group, elements, call.output.data_ptr());
}

// One element of rank 0's input is 2, which no input is; it goes the way of all others.
void CollectiveRank::check_control() {
  const int64_t elements = spec_.elements.front();
  where_ = "control of " + spec_.groups.front().label();
  CollectiveCall call = prepared(0, elements);
  const int64_t parts = spec_.operation == "reduce_scatter" ? spec_.world_size : 1;
  if (rank_ == 0) call.input[call.input.numel() / parts / 2].fill_(2);
  meet();
  call.deadline = soon();
  forward(*groups_.front().communicator, call)->wait();
  append_control(file_, board_.count_wrong(0, elements, call.output.data_ptr()));
}

void CollectiveRank::measure(size_t size) {
  const int64_t elements = spec_.elements[size];
  where_ = fmt::format("preparing {} bytes", elements * element_bytes(spec_.dtype));
  meet();  // nobody looks at the board's last size any more
  board_.fill_input(elements);
  meet();
  if (rank_ == 0) board_.compute_expected(elements);
  meet();
  if (size == 0) check_control();
  const size_t groups = groups_.size();
  std::vector<RankRow> rows(groups);
  for (int64_t i = 0; i < spec_.warmup + spec_.iterations; ++i)
    for (size_t turn = 0; turn < groups; ++turn) {
      const size_t group = i % 2 == 0 ? turn : groups - 1 - turn;
      where_ = fmt::format("{} at {} bytes", spec_.groups[group].label(),
                           elements * element_bytes(spec_.dtype));
      RankRow& row = rows[group];
      row.wrong += iterate(group, elements, i < spec_.warmup ? nullptr : &row);
      ++row.results;
    }
  for (size_t group = 0; group < groups; ++group) {
    rows[group].row = static_cast<int64_t>(size * groups + group);
    append_row(file_, rows[group]);
  }
  rows_done_ += static_cast<int64_t>(groups);
  beat(true);
}

// The launcher hears that this run goes on.
void CollectiveRank::beat(bool now) {
  const Deadline time = Clock::now();
  if (rank_ != 0 || (!now && time < last_beat_ + kBeat)) return;
  last_beat_ = time;
  control_.set(kRowsDoneKey, std::to_string(rows_done_));
}

void CollectiveRank::run() {
  for (size_t group = 0; group < spec_.groups.size(); ++group) connect(group);
  for (size_t size = 0; size < spec_.elements.size(); ++size) measure(size);
  where_ = "closing";
  for (Group& group : groups_) group.communicator->close(soon());
  meeting_->close(soon());
}

}  // namespace

int run_collective_process(const WorkerTask& task, Control& control) {
  prepare_libtorch(1);
  if (task.rank == 0) leave_libraries(task.run_dir);
  const CollectiveSpec spec = collective_spec_from(read_file(collective_spec_path(task.run_dir)));
  std::unique_ptr<CollectiveRank> rank;
  const auto fail = [&](int code, const char* why) {
    const std::string text = fmt::format("{}: {}", rank ? rank->where() : "connecting", why);
    append_error(rank_file_path(task.run_dir, task.rank), text);
    std::fprintf(stderr, "%s: %s\n", process_label(task).c_str(), text.c_str());
    return code;
  };
  try {
    rank = std::make_unique<CollectiveRank>(spec, task, control);
    rank->run();
    return kExitDone;
  } catch (const CommError& error) {
    return fail(kExitCommError, error.what());
  } catch (const std::exception& error) {
    return fail(kExitException, error.what());
  }
}

}  // namespace lockstep
