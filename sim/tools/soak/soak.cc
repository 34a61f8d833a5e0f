#include "sim/tools/soak/soak.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/run_files.h"
#include "sim/launch/workers.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr int kBrokenMost = 3;  // one after another: then something is wrong that seeds do not mend
constexpr milliseconds kGrace{10'000};
constexpr int kLogLines = 20;

double seconds_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e9; }

struct Ended {
  int status = -1;       // as waitpid gives it
  bool is_late = false;  // beyond the limit of a slice
  int signal = 0;        // that interrupted us
};

// Until the child has ended; SIGTERM at a signal of ours and at the limit, then SIGKILL.
Ended wait_for(const Spawned& child, double limit_s, Signals* signals) {
  EventLoop loop;
  loop.watch(child.pidfd.get(), [] {});
  loop.watch(signals->fd(), [] {});
  const int64_t begin = now_ns();
  std::optional<int64_t> asked_ns;
  Ended ended;
  while (ended.status = try_reap(child), ended.status == -1) {
    if (const int signal = signals->next()) ended.signal = signal;
    ended.is_late = ended.is_late || seconds_since(begin) > limit_s;
    if ((ended.signal != 0 || ended.is_late) && !asked_ns) {
      send_signal(child.pidfd, SIGTERM);
      asked_ns = now_ns();
    }
    if (asked_ns && now_ns() - *asked_ns > std::chrono::nanoseconds(kGrace).count()) {
      kill_and_reap(child);
      ended.status = SIGKILL;
      return ended;
    }
    loop.wait(milliseconds(500));
  }
  return ended;
}

class Soaking {
 public:
  Soaking(const SoakOptions& options, Signals* signals)
      : options_(options),
        signals_(signals),
        scratch_(options.folder + "/slice"),
        failures_(options.folder + "/failures") {}

  // False: interrupted, nothing is to be noted.
  bool run(SoakSlice* slice, int* signal) {
    fs::remove_all(scratch_);
    fs::create_directories(scratch_);
    const std::string log = scratch_ + "/log";
    const int64_t begin = now_ns();
    const Spawned child = spawn({.argv = command_of(*slice), .log = log});
    const Ended ended = wait_for(child, options_.slice_limit_s, signals_);
    if (ended.signal != 0) {
      *signal = ended.signal;
      fs::remove_all(scratch_);
      return false;
    }
    slice->duration_s = seconds_since(begin);
    slice->broken = ended.is_late
                        ? fmt::format("had not ended after {:.0f} s", options_.slice_limit_s)
                        : take_result(ended.status, slice);
    keep_what_failed(*slice, log);
    append(as_json(*slice).dump() + "\n");
    fs::remove_all(scratch_);
    return true;
  }

 private:
  std::string result_path() const { return scratch_ + "/result.json"; }

  std::vector<std::string> command_of(const SoakSlice& slice) const {
    std::vector<std::string> words = {options_.program};
    for (std::string& word : row_of(slice.work).command(slice.seed, slice.seeds, scratch_))
      words.push_back(std::move(word));
    words.insert(words.end(), {"--json", result_path(), "--quiet"});
    if (options_.jobs > 0) words.insert(words.end(), {"--jobs", std::to_string(options_.jobs)});
    return words;
  }

  // Why nothing can be said; empty: counts are there.
  std::string take_result(int status, SoakSlice* slice) const {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != kExitPass && code != kExitFail && code != kExitInconclusive)
      return describe_end(status);
    const auto text = read_foreign_file(result_path(), kResultBytesMost);
    if (!text) return "left no result";
    const auto document = parse_foreign_json(text.value(), result_path(), "what --json writes");
    if (!document) return "left a result that cannot be read";
    try {
      slice->counts = row_of(slice->work).counts(document.value());
      if (const auto libraries = document.value().find("libraries");
          libraries != document.value().end() && (*libraries)["torch"].is_string())
        slice->libtorch = (*libraries)["torch"].get<std::string>();
    } catch (const Json::exception&) {
      return "left a result that is none of this lockstep's";
    }
    // A run that nobody counted, as where the machine had no memory.
    return code == kExitInconclusive && slice->counts.runs == 0 ? "came to nothing" : "";
  }

  // One line, whole or not at all.
  void append(const std::string& line) const {
    const std::string path = ledger_path(options_.folder);
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!file.valid() ||
        ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw_errno(errno, "cannot append to " + path);
  }

  void keep_what_failed(const SoakSlice& slice, const std::string& log) const {
    if (slice.counts.failures.empty() && slice.broken.empty()) return;
    fs::create_directories(failures_);
    std::error_code error;
    if (!slice.broken.empty())
      fs::copy_file(log,
                    fmt::format("{}/{}-{}.log", failures_, row_of(slice.work).word, slice.seed),
                    fs::copy_options::overwrite_existing, error);
    for (const SoakFailure& failure : slice.counts.failures) keep_scenario(failure.name + ".json");
  }

  void keep_scenario(const std::string& name) const {
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_))
      if (entry.is_regular_file() && entry.path().filename() == name &&
          entry.path().string().find("-twins/") == std::string::npos) {
        fs::copy_file(entry.path(), failures_ + "/" + name, fs::copy_options::overwrite_existing,
                      error);
        return;
      }
  }

  const SoakOptions& options_;
  Signals* signals_;
  const std::string scratch_, failures_;
};

// The one that had least of the time so far; of equals the first.
SoakWork next_work(const SoakOptions& options, const std::map<SoakWork, double>& seconds) {
  const auto spent = [&](SoakWork work) {
    const auto found = seconds.find(work);
    return found == seconds.end() ? 0 : found->second;
  };
  return *std::min_element(options.works.begin(), options.works.end(),
                           [&](SoakWork a, SoakWork b) { return spent(a) < spent(b); });
}

}  // namespace

SoakSlice next_slice(const SoakOptions& options, const std::vector<SoakSlice>& ledger,
                     SoakWork work) {
  SoakSlice slice;
  slice.work = work;
  slice.seeds = row_of(work).seeds;
  const auto stride = static_cast<uint64_t>(slice.seeds * options.shard.count);
  slice.seed = options.seed + static_cast<uint64_t>(slice.seeds * (options.shard.index - 1));
  for (const SoakSlice& one : ledger) {
    const uint64_t end = one.seed + static_cast<uint64_t>(one.seeds);
    if (one.work == work && end > slice.seed)
      slice.seed += (end - slice.seed + stride - 1) / stride * stride;
  }
  return slice;
}

SoakEnd soak(const SoakOptions& options, const std::vector<SoakSlice>& ledger,
             const std::function<void(const SoakSlice&, const std::vector<SoakSlice>&)>& say) {
  Signals signals;
  Soaking soaking(options, &signals);
  SoakEnd end;
  std::vector<SoakSlice> all = ledger;
  std::map<SoakWork, double> seconds;
  const int64_t begin = now_ns();
  int broken = 0;
  while (seconds_since(begin) < options.hours * 3600 &&
         (options.slices == 0 || std::ssize(end.slices) < options.slices)) {
    SoakSlice slice = next_slice(options, all, next_work(options, seconds));
    slice.commit = lockstep_commit();
    say(slice, end.slices);
    if (!soaking.run(&slice, &end.signal)) break;
    seconds[slice.work] += slice.duration_s;
    broken = slice.broken.empty() ? 0 : broken + 1;
    all.push_back(slice);
    end.slices.push_back(std::move(slice));
    if (broken == kBrokenMost) {
      end.stopped = fmt::format("{} slices in a row broke down", broken);
      break;
    }
  }
  return end;
}

}  // namespace lockstep
