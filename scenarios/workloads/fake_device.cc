#include "scenarios/workloads/fake_device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#if __has_include(<ATen/ops/_reshape_alias_native.h>)
#include <ATen/ops/_reshape_alias_native.h>
#endif
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#if __has_include(<ATen/detail/AcceleratorHooksInterface.h>)
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#define LOCKSTEP_ACCELERATOR_HOOKS
#endif
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "scenarios/base/clock.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/fake_memory.h"

namespace lockstep {
namespace {

using c10::Device;

// LibTorch's own optional, which became std::optional on the way.
template <class Optional, class T>
struct Rebound;
template <template <class...> class Optional, class Old, class T>
struct Rebound<Optional<Old>, T> {
  using type = Optional<T>;
};
template <class T>
using Maybe = typename Rebound<decltype(at::TensorOptions().device_opt()), T>::type;

constexpr auto kType = kFakeDevice;

thread_local c10::DeviceIndex current = 0;
std::atomic<int> device_count{0};

#ifdef LOCKSTEP_ACCELERATOR_HOOKS
// Autograd of these versions asks "the accelerator", which has a name and these, for its devices.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const { return true; }  // virtual since 2.7 or so
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count.load());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current, device);
  }
  // Seeded with all others; nothing draws on a device.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
  // All memory is the devices' as well.
  bool isPinnedPtr(const void*) const override { return true; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current, device);
  }
};
#endif

// Which device is a thread's current one, and which of its streams. All is done when it returns,
// but for streams that are late (fake_memory.h).
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device device) const override {
    return {kType, std::exchange(current, device.index())};
  }
  Device getDevice() const override { return {kType, current}; }
  void setDevice(Device device) const override { current = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(Device device) const noexcept override { return fake_stream(device); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override {
    return new_fake_stream(device);
  }
  // Asked for by autograd since LibTorch 2.5 or so.
  c10::Stream getDefaultStream(Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return exchange_fake_stream(stream);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Recorded;
    *static_cast<Recorded*>(*event) = {record_fake_event(stream), now_ns()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) wait_for_fake_event(known(event), stream);
  }
  // Who asks has waited.
  bool queryEvent(void* event) const override {
    if (event != nullptr) wait_for_fake_event(known(event));
    return true;
  }
  // Virtual since 2.4 or so; milliseconds.
  void synchronizeEvent(void* event) const { queryEvent(event); }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const {
    const auto* begin = static_cast<Recorded*>(from);
    return static_cast<double>(static_cast<Recorded*>(to)->time_ns - begin->time_ns) / 1e6;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_for_fake_event(record_fake_event(stream));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Recorded*>(event);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count.load());
  }

 private:
  struct Recorded {
    LateQueues::Known known;
    int64_t time_ns = 0;  // all is done when it returns
  };
  static const LateQueues::Known& known(void* event) {
    return static_cast<Recorded*>(event)->known;
  }
};

struct HostMemory final : c10::Allocator {
  // Const in LibTorch 1.13, no longer in 2: each version overrides its own.
  c10::DataPtr allocate(size_t bytes) const { return fake_memory(bytes, Device(kType, current)); }
  c10::DataPtr allocate(size_t bytes) { return std::as_const(*this).allocate(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // no raw pointers
};

// For as long as it lives, `device` is the thread's current one.
class OnDevice {
 public:
  explicit OnDevice(Maybe<Device> device) : before_(current) {
    if (device && device->has_index()) current = device->index();
  }
  ~OnDevice() { current = before_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const c10::DeviceIndex before_;
};

HostMemory host_memory;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef sizes, Maybe<at::ScalarType> type, Maybe<at::Layout>,
                 Maybe<Device> device, Maybe<bool>, Maybe<at::MemoryFormat> format) {
  const OnDevice on(device);
  return at::detail::empty_generic(sizes, &host_memory, kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, Maybe<at::ScalarType> type,
                         Maybe<at::Layout>, Maybe<Device> device, Maybe<bool>) {
  const OnDevice on(device);
  return at::detail::empty_strided_generic(sizes, strides, &host_memory, kKeys,
                                           c10::dtype_or_default(type));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  copy_with_fake_device(from, to, non_blocking);
  return to;
}

const at::Tensor& resize_memory(const at::Tensor& tensor, at::IntArrayRef sizes,
                                Maybe<at::MemoryFormat>) {
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  const auto bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  if (tensor.storage().nbytes() >= bytes) return tensor;
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr(fake_memory(bytes, tensor.device()));
  storage->set_nbytes(bytes);
  return tensor;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  resize_memory(to, from.sizes(), {});
  return copy_from(from, to, false);
}

// As real devices do; a number on the cpu (a scalar tensor) goes with all.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Maybe<Device> first;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.device().is_cpu() && tensor.dim() == 0)) return;
    if (!first) first = tensor.device();
    TORCH_CHECK(*first == tensor.device(), op.schema().name(), " of tensors on ",
                device_name(*first), " and ", device_name(tensor.device()));
  };
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size()))
    if (value.isTensor()) {
      look(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
    }
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_devices(op, *stack);
  const OperationOnFake operation;
  at::native::cpu_fallback(op, stack);
}

void register_once() {
#ifdef LOCKSTEP_ACCELERATOR_HOOKS
  c10::register_privateuse1_backend("fake");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
#endif
  static const c10::impl::DeviceGuardImplRegistrar guard(kType, new Guard);
  static torch::Library all(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__,
                            __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  static torch::Library own(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                            __LINE__);
  own.impl("empty.memory_format", TORCH_FN(empty));
  own.impl("empty_strided", TORCH_FN(empty_strided));
  own.impl("_copy_from", TORCH_FN(copy_from));
  own.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  own.impl("resize_", TORCH_FN(resize_memory));
  own.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  own.impl("view", TORCH_FN(at::native::view));
#if __has_include(<ATen/ops/_reshape_alias_native.h>)
  own.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
#endif
  // Collectives have no autograd, of which 1.13 is not told for such devices.
  static torch::Library c10d(torch::Library::IMPL, "c10d", c10::DispatchKey::AutogradPrivateUse1,
                             __FILE__, __LINE__);
  for (const char* name : {"allreduce_", "broadcast_", "allgather_"})
    c10d.impl(name, torch::CppFunction::makeFallthrough());
}

}  // namespace

std::vector<Device> fake_devices(const Scenario& scenario, int64_t rank) {
  static std::once_flag once;
  std::call_once(once, [&] {
    device_count = static_cast<int>(scenario.world_size * scenario.devices_per_rank);
    register_once();
    if (scenario.streams == "late") make_streams_late();
  });
  std::vector<Device> devices;
  for (int64_t i = 0; i < scenario.devices_per_rank; ++i)
    devices.emplace_back(kType,
                         static_cast<c10::DeviceIndex>(rank * scenario.devices_per_rank + i));
  return devices;
}

}  // namespace lockstep
