#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/launch/limits.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kWorkerTimeout{20};

struct Finding {
  bool good = false;
  std::string detail;
};

Finding errno_finding(const char* what) {
  return {false, fmt::format("{}: {}", what, strerror(errno))};
}

std::optional<Libraries> ask_worker(const std::string& worker, std::string* why) {
  const auto text = output_of({worker, "--libraries"}, kWorkerTimeout, why);
  if (!text) return std::nullopt;
  auto libraries = libraries_of(*text);
  if (!libraries) *why = "lockstep-worker --libraries printed no JSON object";
  return libraries;
}

std::string libraries_text(const Libraries& l) {
  return fmt::format("LibTorch {} ({}), Gloo {}{}, {} {}", l.torch, l.torch_cpu_capability, l.gloo,
                     l.gloo_linked == "own" ? " (our own, beside the one inside LibTorch)" : "",
                     l.blas, l.blas_cpu_capability);
}

// Two versions of Gloo in one process, of which one calls into the other, fail in any way.
Finding libraries_finding(const Libraries& l) {
  if (l.gloo_linked != "mixed") return {true, libraries_text(l)};
  return {false,
          fmt::format("Gloo {} was compiled against, but the Gloo inside {} is called: build "
                      "with -DLOCKSTEP_GLOO=FOLDER (scripts/gloo_source)",
                      l.gloo, l.torch_file)};
}

constexpr const char* kNcclWord = "ProcessGroupNCCL, one rank to a device";

Finding cuda_finding(const FoundDevices& devices) {
  if (devices.count == 0) return {false, devices.problem};
  return {true, fmt::format("{} x {}, compute capability {}, CUDA {}", devices.count, devices.name,
                            devices.capability, devices.driver)};
}

Finding check_loopback() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno_finding("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(fd, 1) == 0;
  Finding finding = bound ? Finding{true, "127.0.0.1"} : errno_finding("127.0.0.1");
  close(fd);
  return finding;
}

Finding check_pidfd() {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (fd < 0) return errno_finding("pidfd_open");
  close(fd);
  return {true, "pidfd_open"};
}

Finding check_free_memory() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return errno_finding("sysinfo");
  std::ifstream file("/proc/meminfo");
  int64_t available_kb = 0;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("MemAvailable:", 0) == 0) available_kb = std::atoll(line.c_str() + 13);
  const int64_t available_mb = available_kb * 1024 / 1'000'000;
  return {available_mb >= 1000, fmt::format("{} MB available of {} MB", grouped(available_mb),
                                            grouped(this_machine().memory_mb))};
}

Finding check_shared_memory() {
  std::error_code error;
  const auto space = std::filesystem::space("/dev/shm", error);
  if (error) return {false, "/dev/shm: " + error.message()};
  return {true, fmt::format("/dev/shm, {} MB free",
                            grouped(static_cast<int64_t>(space.available) / 1'000'000))};
}

// As ranks of communicator shm reach the memory of rank 0.
Finding check_common_memory() {
  const int fd = memfd_create("lockstep", MFD_CLOEXEC);
  if (fd < 0) return errno_finding("memfd_create");
  const std::string path = fmt::format("/proc/{}/fd/{}", getpid(), fd);
  const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
  Finding finding = again < 0 ? errno_finding(path.c_str()) : Finding{true, "memfd"};
  if (again >= 0) close(again);
  close(fd);
  return finding;
}

Finding check_user_namespaces() {
  std::ifstream most("/proc/sys/user/max_user_namespaces");
  int64_t count = 0;
  most >> count;
  return {count > 0, fmt::format("at most {}", grouped(count))};
}

Finding check_program(const char* name) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"})
    if (access((std::string(folder) + name).c_str(), X_OK) == 0)
      return {true, std::string(folder) + name};
  return {false, fmt::format("{} is not installed", name)};
}

Finding check_cgroup() {
  std::string why;
  const auto quota = CpuQuota::enter(1, &why);
  return quota == nullptr ? Finding{false, why} : Finding{true, quota->folder()};
}

class Report {
 public:
  Report() {
    table_.column("");
    table_.column("what");
    table_.column("found");
    table_.column("without it");
  }
  void needed(const char* what, const Finding& finding) {
    missing_ += !finding.good;
    table_.row({finding.good ? "ok" : "missing", what, finding.detail,
                finding.good ? "" : "verify cannot run"});
  }
  void useful(const char* what, const Finding& finding, const char* without) {
    table_.row(
        {finding.good ? "ok" : "missing", what, finding.detail, finding.good ? "" : without});
  }
  int64_t missing() const { return missing_; }
  std::string text() const { return table_.text(style_of("never", STDOUT_FILENO)); }

 private:
  Table table_;
  int64_t missing_ = 0;
};

void check_worker(Report* report) {
  const auto worker = find_worker();
  if (!worker) return report->needed("worker", {false, worker.errors().front().message});
  report->needed("worker", {true, short_path(worker.value())});
  std::string why;
  const auto libraries = ask_worker(worker.value(), &why);
  report->needed("libraries", libraries ? libraries_finding(*libraries)
                                        : Finding{false, "lockstep-worker " + why});
  if (!libraries) return;
  if (!libraries->torch_file.empty())
    report->useful("LibTorch", {true, short_path(libraries->torch_file)}, "");
  const FoundDevices& devices = found_devices(worker.value());
  report->useful("CUDA", cuda_finding(devices), "no device cuda; device auto is the cpu");
  report->useful("NCCL",
                 {devices.no_nccl.empty(), devices.no_nccl.empty() ? kNcclWord : devices.no_nccl},
                 "no communicator nccl");
}

}  // namespace

int doctor() {
  Report report;
  const Machine machine = this_machine();
  check_worker(&report);
  report.needed("loopback TCP", check_loopback());
  report.needed("pidfd", check_pidfd());
  report.needed("cores", {machine.cores > 0, fmt::format("{}, {}", machine.cores, machine.cpu)});
  report.useful("memory", check_free_memory(), "fewer runs side by side");
  report.useful("shared memory", check_shared_memory(), "shared memory needs /dev/shm");
  report.useful("memory of several ranks", check_common_memory(), "no communicator shm");
  report.useful("root", {geteuid() == 0, fmt::format("user {}", geteuid())},
                "network faults need root or user namespaces");
  report.useful("user namespaces", check_user_namespaces(),
                "network faults need root or user namespaces");
  report.useful("tc", check_program("tc"), "slow links are emulated");
  report.useful("cgroup", check_cgroup(), "slow ranks spin instead");
  const bool good = report.missing() == 0;
  return print_result(report.text() + (good ? "\nok: this machine can verify\n"
                                            : fmt::format("\n{} needed and missing; exit {}\n",
                                                          report.missing(), kExitFail)),
                      good ? kExitPass : kExitFail);
}

int version() {
  std::string text = fmt::format("lockstep {} ({})\n", lockstep_version(), lockstep_commit());
  const auto worker = find_worker();
  std::string why;
  const auto libraries = worker ? ask_worker(worker.value(), &why) : std::nullopt;
  if (libraries) text += libraries_text(*libraries) + "\n";
  return print_result(text, kExitPass);
}

}  // namespace lockstep
