#include "sim/launch/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "scenarios/base/file.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

constexpr int64_t kTailBytes = 16 << 10;

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

std::string last_bytes(const std::string& path) {
  const auto file = open_foreign_file(path, INT64_MAX);  // its end alone is read
  if (!file) return "";
  const int64_t bytes = std::min(file.value().bytes, kTailBytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  if (!read_at(file.value().fd.get(), file.value().bytes - bytes, text.data(), text.size()))
    return "";  // somebody has cut it meanwhile
  return text;
}

}  // namespace

void throw_errno(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

std::string run_dir_of(const std::string& out_dir, size_t index) {
  return fmt::format("{}/{:04}", out_dir, index + 1);
}

void make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0) throw_errno(errno, "cannot make the directory " + path);
}

void remove_dir(const std::string& path) noexcept {
  std::error_code ignored;  // what cannot be removed stays; the run's result does not depend on it
  std::filesystem::remove_all(path, ignored);
}

void remove_if_empty(const std::string& path) noexcept {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && status.st_size == 0) ::unlink(path.c_str());
}

void write_file(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid() || !write_all(fd.get(), text)) throw_errno(errno, "cannot write " + path);
}

std::string read_file(const std::string& path) {
  return read_foreign_file(path, kRunFileBytesMost).value_or("");
}

void append_to_file(const std::string& path, const std::string& text) noexcept {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (fd.valid()) write_all(fd.get(), text);
}

std::string log_tail(const std::string& path, int lines) {
  std::string text = last_bytes(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t from = text.size();
  for (int i = 0; i < lines && from != std::string::npos && from > 0; ++i)
    from = text.rfind('\n', from - 1);
  if (from == std::string::npos || from == 0) return text;
  return text.substr(from + 1);
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was ended by signal {} ({})", number, ::strsignal(number));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::string describe_process(pid_t pid) {
  const std::string proc = fmt::format("/proc/{}/", pid);
  std::string text = fmt::format("--- lockstep: process {} at its deadline\n", pid);
  std::istringstream status(read_file(proc + "status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("State") || line.starts_with("Threads") || line.starts_with("VmRSS"))
      text += line + "\n";
  for (const char* name : {"wchan", "syscall", "stack"})
    if (std::string value = read_file(proc + name); !value.empty())
      text += fmt::format("{}: {}{}", name, value, value.ends_with('\n') ? "" : "\n");
  return text;
}

std::vector<RankRecords> read_all_records(const std::string& dir, int64_t world_size) {
  std::vector<RankRecords> all(static_cast<size_t>(world_size));
  for (int64_t rank = 0; rank < world_size; ++rank) {
    RankRecords& records = all[static_cast<size_t>(rank)];
    std::string why;
    if (read_records(records_path(dir, rank), &records, &why) && records.rank == rank) continue;
    records = RankRecords{};
    records.rank = static_cast<int32_t>(rank);
    records.world_size = static_cast<int32_t>(world_size);
  }
  return all;
}

}  // namespace lockstep
