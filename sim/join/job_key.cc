#include "sim/join/job_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"
#include "sim/join/secret.h"

namespace lockstep {
namespace {

constexpr size_t kKeyBytesMin = 16, kKeyBytesMax = 4096;
constexpr std::chrono::seconds kKeyPatience{30};
// Of Open MPI up to 5: 128 random bits for each job, in the environment of its processes alone.
constexpr const char* kMpiKey = "OMPI_MCA_orte_precondition_transports";

InputError bad_key(const std::string& message) {
  return {"",
          0,
          0,
          "",
          message,
          fmt::format("a secret of {} to {} bytes, the same for all processes of the job, and for "
                      "nobody else to read: `openssl rand -hex 32` makes one",
                      kKeyBytesMin, kKeyBytesMax)};
}

Expected<JobKey> checked(std::string bytes, std::string source) {
  while (!bytes.empty() && (bytes.back() == '\n' || bytes.back() == '\r')) bytes.pop_back();
  if (bytes.size() >= kKeyBytesMin && bytes.size() <= kKeyBytesMax)
    return JobKey{std::move(bytes), std::move(source)};
  return bad_key(fmt::format("{} holds a key of {} bytes", source, bytes.size()));
}

// Up to the end, or to one byte more than a key may have; a pipe may be slow.
std::optional<std::string> read_key(int fd) {
  const Deadline deadline = deadline_after(kKeyPatience);
  std::string bytes;
  char buffer[kKeyBytesMax + 2];
  while (bytes.size() <= kKeyBytesMax) {
    pollfd ready{fd, POLLIN, 0};
    const int n = ::poll(&ready, 1, static_cast<int>(time_left(deadline).count()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

Expected<JobKey> from_standard_input(const std::string& source) {
  const auto bytes = read_key(STDIN_FILENO);
  if (bytes && !bytes->empty()) return checked(*bytes, source + " - (standard input)");
  return bad_key(source + " -: there is no key on standard input (a remote shell must pass it on)");
}

Expected<JobKey> from_file(const std::string& path, const std::string& source) {
  if (path == "-") return from_standard_input(source);
  const std::string what = fmt::format("{} {}", source, path);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
    return bad_key(fmt::format("{}: {}", what, std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return bad_key(what + ": no regular file");
  if ((info.st_mode & 077) != 0)
    return bad_key(
        fmt::format("{}: other users have access to it (mode {:04o})", what, info.st_mode & 07777));
  const auto bytes = read_key(fd.get());
  if (!bytes) return bad_key(fmt::format("{}: {}", what, std::strerror(errno)));
  return checked(*bytes, what);
}

}  // namespace

Expected<JobKey> find_job_key(const Variables& variables, const Placement& placement,
                              const std::string& file) {
  const auto value = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  if (!file.empty()) return from_file(file, "--job-key-file");
  if (const auto path = value("LOCKSTEP_JOB_KEY_FILE"))
    return from_file(*path, "LOCKSTEP_JOB_KEY_FILE");
  if (const auto key = value("LOCKSTEP_JOB_KEY")) return checked(*key, "LOCKSTEP_JOB_KEY");
  const auto handed_out = placement.launcher == "mpi" ? value(kMpiKey) : std::nullopt;
  if (handed_out && handed_out->size() >= kKeyBytesMin) return JobKey{*handed_out, kMpiKey};
  return JobKey();
}

std::string new_job_key() { return to_hex(random_bytes(kNonceBytes)); }

}  // namespace lockstep
