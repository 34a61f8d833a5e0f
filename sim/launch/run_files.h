#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "sim/launch/executor.h"

namespace lockstep {

// Files and directories of runs, for the launcher. Paths as in protocol.h.

// What a system call that failed with `error` (errno) throws: std::system_error.
[[noreturn]] void throw_errno(int error, const std::string& what);

// OUT_DIR/0001 for index 0.
std::string run_dir_of(const std::string& out_dir, size_t index);
// 0700. Throws std::system_error, also if it is there already.
void make_dir(const std::string& path);
void remove_dir(const std::string& path) noexcept;
void remove_if_empty(const std::string& path) noexcept;  // a file
// Throws std::system_error, as on a full disk.
void write_file(const std::string& path, const std::string& text);
// More than the largest file that a rank leaves, its records.
inline constexpr int64_t kRunFileBytesMost = int64_t{1} << 30;
// "" where it cannot be read, is no regular file or has more bytes than that.
std::string read_file(const std::string& path);
void append_to_file(const std::string& path, const std::string& text) noexcept;

// The last lines of a log, without its final newline.
std::string log_tail(const std::string& path, int lines);

// "was ended by signal 9 (Killed)" or "ended with exit code 3".
std::string describe_end(int status);

// What a process is doing, as /proc tells it: state, wait channel, system call, kernel stack.
std::string describe_process(pid_t pid);

// What is kept, and what members of a job send, of a process. The second throws
// nlohmann::json::exception, and looks at no range.
nlohmann::ordered_json as_json(const ProcessState& state);
ProcessState process_state_from(const nlohmann::ordered_json& json);

// Records of all ranks, by rank, from files in `dir`; unreadable ones are empty.
std::vector<RankRecords> read_all_records(const std::string& dir, int64_t world_size);

// Whether `name` is the plain name of a file that this rank leaves in its run directory: records,
// log, evidence and stack (protocol.h), or a dump of a state that differed, as
// rank-0.replica.step-3.run, .golden and .index.txt.
bool is_rank_file(const std::string& name, int64_t rank);

// A run directory holds all of a RunOutcome but what only the launcher saw: the ends of processes,
// how long it took, last lines of logs. That stands in ends.json.
std::string ends_path(const std::string& run_dir);

// Writes ends.json; before evidence or records are moved out of `outcome`. plan.json is there, or
// its text is `plan`. Throws std::system_error.
void write_ends(const RunOutcome& outcome, const std::string& run_dir, const std::string& plan);

// All of an outcome that no process wrote: makes the folder (0700) with plan, ends, records and
// evidence, so that read_stored_run() gives it back. Throws std::system_error.
void leave_outcome(const RunOutcome& outcome, const std::string& run_dir);

// The outcome of a run whose directory was kept, on one clock again; without the version of
// LibTorch. Nothing, and `why`, where the folder is no run directory, lacks a file, was left by
// another version of lockstep, or has another plan than the one that was run.
std::optional<RunOutcome> read_stored_run(const std::string& run_dir, std::string* why);

}  // namespace lockstep
