#include "sim/worker/collective.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "reducer/comm/collective.h"
#include "scenarios/workloads/workload.h"
#include "sim/collective/execute.h"
#include "sim/collective/rank_file.h"
#include "sim/launch/files.h"
#include "sim/worker/collective_board.h"
#include "sim/worker/libraries.h"
#include "sim/worker/process_tasks.h"

namespace lockstep {
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
