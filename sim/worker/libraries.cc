#include "sim/worker/libraries.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/config.h>
#include <torch/version.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "reducer/nccl/nccl.h"
#include "scenarios/workloads/devices.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

// The text behind "NAME: " in ATen's description of itself, up to the end of its line.
std::string aten_says(const std::string& name) {
  const std::string text = at::show_config();
  const size_t at = text.find(name);
  if (at == std::string::npos) return "unknown";
  const size_t begin = at + name.size();
  return text.substr(begin, text.find_first_of("\r\n", begin) - begin);
}

// OpenBLAS tells about itself if it is the BLAS that LibTorch has loaded.
std::string openblas_says(const char* function) {
  using Says = const char* (*)();
  const auto says = reinterpret_cast<Says>(dlsym(RTLD_DEFAULT, function));
  return says == nullptr ? "" : says();
}

// Wheels have theirs inside.
std::string blas_name() {
  const std::string config = openblas_says("openblas_get_config");
  if (config.empty()) {
    const std::string inside = aten_says("BLAS_INFO=");
    return inside.substr(0, inside.find(','));
  }
  return config.substr(0, config.find(' ', config.find(' ') + 1));
}

std::string blas_capability() {
  const std::string core = openblas_says("openblas_get_corename");
  return core.empty() ? "unknown" : core;
}

// The file that a function was loaded from.
std::string file_of(const void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Whose functions we call: the shared library's, which LibTorch calls too; our own, in this
// program; or, wrongly, those inside LibTorch, which are of another version than our headers.
std::string gloo_linked() {
  void (*function)(const gloo::AllreduceOptions&) = &gloo::allreduce;
  const std::filesystem::path file = file_of(reinterpret_cast<const void*>(function));
  const std::string name = file.filename().string();
  if (name.starts_with("libgloo")) return "shared";
  return name.starts_with("libtorch") ? "mixed" : "own";
}

// "NVIDIA H200, compute capability 9.0, CUDA 13.0"
std::string cuda_text(const CudaDevices& cuda) {
  if (cuda.count == 0) return "";
  return fmt::format("{}, compute capability {}, CUDA {}", cuda.name, cuda.capability, cuda.driver);
}

std::string gloo_version() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

}  // namespace

std::string libraries_json() {
  nlohmann::ordered_json document;
  document["torch"] = TORCH_VERSION;
  document["torch_file"] = file_of(reinterpret_cast<const void*>(&at::show_config));
  document["gloo"] = gloo_version();
  document["gloo_linked"] = gloo_linked();
  document["blas"] = blas_name();
  document["torch_cpu_capability"] = aten_says("CPU capability usage: ");
  document["blas_cpu_capability"] = blas_capability();
  const CudaDevices* cuda = cuda_devices_if_asked();
  if (cuda != nullptr) document["cuda"] = cuda_text(*cuda);
  document["fingerprint"] = fingerprint();
  return document.dump();
}

std::string devices_json() {
  const CudaDevices& cuda = cuda_devices();
  const nlohmann::ordered_json document = {
      {"cuda",
       {{"count", cuda.count},
        {"problem", cuda.problem},
        {"name", cuda.name},
        {"capability", cuda.capability},
        {"memory_bytes", cuda.memory_bytes},
        {"driver", cuda.driver}}},
      {"no_nccl", cuda.count > 0 ? why_no_nccl() : cuda.problem}};
  return document.dump();
}

std::string fingerprint() {
  const CudaDevices* cuda = cuda_devices_if_asked();
  return fmt::format("LibTorch {}; Gloo {}; {} {}; {}{}", TORCH_VERSION, gloo_version(),
                     blas_name(), blas_capability(), aten_says("CPU capability usage: "),
                     cuda != nullptr ? "; " + cuda_text(*cuda) : "");
}

void leave_libraries(const std::string& run_dir) {
  const std::string path = run_dir + "/../libraries.json";
  const std::string unfinished = fmt::format("{}.{}", path, getpid());
  if (access(path.c_str(), F_OK) == 0) return;
  const int fd = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;  // the report says "unknown" then
  const std::string text = libraries_json() + "\n";
  const bool whole = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  if (!whole || std::rename(unfinished.c_str(), path.c_str()) != 0) unlink(unfinished.c_str());
}

}  // namespace lockstep
