#include "scenarios/workloads/devices.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/fake_device.h"
#include "scenarios/workloads/fake_memory.h"
#include "scenarios/workloads/layers.h"

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

namespace {

using c10::Device;

constexpr const char* kFakePrefix = "fake:";

Device cuda_device(int64_t local_rank) {
  const CudaDevices& devices = cuda_devices();
  if (devices.count == 0) throw std::runtime_error("device cuda: " + devices.problem);
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(local_rank % devices.count)};
}

}  // namespace

std::vector<Device> rank_devices(const Scenario& scenario, int64_t rank, int64_t local_rank) {
  if (scenario.device == "fake") return fake_devices(scenario, rank);
  if (scenario.device == "cuda") return {cuda_device(local_rank)};
  return {};
}

void prepare_devices(const Scenario& scenario) {
  if (scenario.device != "cuda") return;
  cuda_device(0);
  make_cuda_deterministic();
}

std::vector<Device> golden_devices(const Scenario& scenario) {
  if (scenario.device != "cuda" || scenario.golden_device != "same") return {};
  return {cuda_device(0)};
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return tensor;
  if (tensor.device().type() == kFakeDevice) return read_fake_device(tensor);
  return tensor.detach().cpu();
}

std::string device_name(Device device) {
  return device.type() == kFakeDevice ? kFakePrefix + std::to_string(device.index()) : device.str();
}

Device device_of_name(const std::string& name) {
  // Checkpoints of before 0.1 call it by its old name.
  if (!name.starts_with(kFakePrefix) && !name.starts_with("stand_in:")) return Device(name);
  return {kFakeDevice, static_cast<c10::DeviceIndex>(std::atoi(name.c_str() + name.find(':') + 1))};
}

namespace {

class PlacedModel : public Model {
 public:
  PlacedModel(c10::Device device, std::unique_ptr<Model> model)
      : device_(device), model_(std::move(model)) {
    const c10::NoGradGuard no_grad;
    for (const NamedTensors& tensors : {model_->parameters(), model_->buffers()})
      for (const NamedTensor& named : tensors)
        at::Tensor(named.tensor).set_data(named.tensor.detach().to(device_));
  }

  bool normalize_over(BatchGroup* group) override { return model_->normalize_over(group); }
  bool draw_from(SampleDraws* draws) override { return model_->draw_from(draws); }
  std::vector<std::string> undeclared_random_layers() const override {
    return model_->undeclared_random_layers();
  }
  bool run_by(ComputeClock* clock) override { return model_->run_by(clock); }
  at::Tensor forward(const at::Tensor& input) override {
    return model_->forward(input.to(device_));
  }
  std::vector<at::Tensor> outputs(const at::Tensor& returned) const override {
    return model_->outputs(returned);
  }
  NamedTensors parameters() const override { return model_->parameters(); }
  NamedTensors buffers() const override { return model_->buffers(); }

 private:
  const c10::Device device_;
  const std::unique_ptr<Model> model_;
};

}  // namespace

std::unique_ptr<Model> place_on(c10::Device device, std::unique_ptr<Model> model) {
  return std::make_unique<PlacedModel>(device, std::move(model));
}

namespace {

class SpreadMlp : public Model {
 public:
  SpreadMlp(const std::vector<c10::Device>& devices, const Scenario& scenario, const Model& model)
      : activation_(activation_of(scenario.model.options.text("activation"))) {
    for (const NamedTensor& built : model.parameters()) {
      NamedTensor moved = built;
      moved.device = device_of(scenario, built.name);
      moved.tensor = built.tensor.detach().to(devices.at(static_cast<size_t>(moved.device)));
      moved.tensor.set_requires_grad(true);
      parameters_.push_back(std::move(moved));
    }
    bias_ = scenario.model.options.flag("bias");
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = as_rows(input);
    const size_t each = bias_ ? 2 : 1;
    for (size_t p = 0; p < parameters_.size(); p += each) {
      const at::Tensor& weight = parameters_[p].tensor;
      if (p > 0) x = activation_(x);
      x = at::linear(x.to(weight.device()), weight,
                     bias_ ? parameters_[p + 1].tensor : at::Tensor());
    }
    return x;
  }

  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return {}; }

 private:
  const Activation activation_;
  NamedTensors parameters_;
  bool bias_ = true;
};

}  // namespace

std::unique_ptr<Model> spread_over(const std::vector<c10::Device>& devices,
                                   const Scenario& scenario, const Model& model) {
  LOCKSTEP_CHECK(scenario.model.kind == "mlp", "a " + scenario.model.kind + " on several devices");
  return std::make_unique<SpreadMlp>(devices, scenario, model);
}

}  // namespace lockstep
