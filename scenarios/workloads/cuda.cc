#include "scenarios/workloads/cuda.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>

namespace lockstep {
namespace {

constexpr const char* kLibrary = "libtorch_cuda.so";
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR

std::atomic<const CudaDevices*> asked{nullptr};

std::string last_error() {
  const char* why = ::dlerror();
  return why != nullptr ? why : "it cannot be loaded";
}

// The folder that LibTorch was loaded from.
std::filesystem::path torch_folder() {
  Dl_info info{};
  const auto* function = reinterpret_cast<const void*>(&at::globalContext);
  if (::dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// "" where LibTorch's CUDA library is loaded.
std::string load_library() {
  const std::filesystem::path file = torch_folder() / kLibrary;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return "this LibTorch is built without CUDA";
  // Read when cuBLAS starts; without it sums may change from one call to the next.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
  return fmt::format("{} cannot be loaded ({})", kLibrary, last_error());
}

// The few functions of the driver that say what there is. Its interface is C and does not change.
class Driver {
 public:
  Driver() : handle_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  bool is_there() const { return handle_ != nullptr; }

  // "" where it is ready.
  std::string start() const {
    const int code = call<int(unsigned)>("cuInit", 0U);
    return code == 0 ? "" : fmt::format("the NVIDIA driver says {}", error_name(code));
  }
  int64_t count() const {
    int count = 0;
    return call<int(int*)>("cuDeviceGetCount", &count) == 0 ? count : 0;
  }
  void describe(CudaDevices* devices) const {
    char name[256] = "";
    if (call<int(char*, int, int)>("cuDeviceGetName", name, 256, 0) == 0) devices->name = name;
    int major = 0, minor = 0, version = 0;
    size_t bytes = 0;
    call<int(int*, int, int)>("cuDeviceGetAttribute", &major, kMajor, 0);
    call<int(int*, int, int)>("cuDeviceGetAttribute", &minor, kMinor, 0);
    devices->capability = fmt::format("{}.{}", major, minor);
    if (call<int(size_t*, int)>("cuDeviceTotalMem_v2", &bytes, 0) == 0)
      devices->memory_bytes = static_cast<int64_t>(bytes);
    if (call<int(int*)>("cuDriverGetVersion", &version) == 0)
      devices->driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }

 private:
  static constexpr int kNoFunction = -1;

  template <class Function, class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    auto* function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    return function == nullptr ? kNoFunction : function(arguments...);
  }
  std::string error_name(int code) const {
    const char* name = nullptr;
    const int found = call<int(int, const char**)>("cuGetErrorName", code, &name);
    return found == 0 && name != nullptr ? name : fmt::format("error {}", code);
  }

  void* const handle_;
};

CudaDevices find_devices() {
  CudaDevices devices;
  devices.problem = load_library();
  if (!devices.problem.empty()) return devices;
  const Driver driver;
  if (!driver.is_there()) {
    devices.problem = fmt::format("there is no NVIDIA driver ({})", last_error());
    return devices;
  }
  devices.problem = driver.start();
  if (!devices.problem.empty()) return devices;
  devices.count = driver.count();
  if (devices.count == 0)
    devices.problem = "the NVIDIA driver shows no device";
  else
    driver.describe(&devices);
  return devices;
}

}  // namespace

const CudaDevices& cuda_devices() {
  static const CudaDevices devices = find_devices();
  asked = &devices;
  return devices;
}

const CudaDevices* cuda_devices_if_asked() { return asked; }

void make_cuda_deterministic() {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
}

}  // namespace lockstep
