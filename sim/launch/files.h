#pragma once

#include <cstdint>
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

// Records of all ranks, by rank, from files in `dir`; unreadable ones are empty.
std::vector<RankRecords> read_all_records(const std::string& dir, int64_t world_size);

}  // namespace lockstep
