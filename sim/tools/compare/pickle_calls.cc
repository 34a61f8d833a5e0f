#include "sim/tools/compare/pickle_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/compare/checkpoint.h"
#include "sim/tools/compare/unpickler.h"
#include "sim/weights/tensor.h"

namespace lockstep {
namespace {

using Kind = PickleValue::Kind;

struct StorageName {
  std::string_view name;
  Dtype dtype;
};
constexpr std::array<StorageName, 12> kStorages = {{{"DoubleStorage", Dtype::float64},
                                                    {"FloatStorage", Dtype::float32},
                                                    {"HalfStorage", Dtype::float16},
                                                    {"BFloat16Storage", Dtype::bfloat16},
                                                    {"ComplexDoubleStorage", Dtype::complex128},
                                                    {"ComplexFloatStorage", Dtype::complex64},
                                                    {"LongStorage", Dtype::int64},
                                                    {"IntStorage", Dtype::int32},
                                                    {"ShortStorage", Dtype::int16},
                                                    {"CharStorage", Dtype::int8},
                                                    {"ByteStorage", Dtype::uint8},
                                                    {"BoolStorage", Dtype::boolean}}};

std::optional<Dtype> dtype_of_storage(std::string_view global) {
  for (const StorageName& storage : kStorages)
    if (global.starts_with("torch\n") && global.substr(6) == storage.name) return storage.dtype;
  return std::nullopt;
}

// The functions and classes that may be called.
constexpr std::string_view kOrderedDict = "collections\nOrderedDict",
                           kDefaultDict = "collections\ndefaultdict",
                           kPlainDict = "__builtin__\ndict", kDict = "builtins\ndict",
                           kOldSet = "__builtin__\nset", kSize = "torch\nSize",
                           kDevice = "torch\ndevice", kEncode = "_codecs\nencode",
                           kOldByteArray = "__builtin__\nbytearray",
                           kByteArray = "builtins\nbytearray",
                           kTensor = "torch._utils\n_rebuild_tensor",
                           kTensor2 = "torch._utils\n_rebuild_tensor_v2",
                           kTensor3 = "torch._utils\n_rebuild_tensor_v3",
                           kParameter = "torch._utils\n_rebuild_parameter",
                           kParameterWithState = "torch._utils\n_rebuild_parameter_with_state",
                           kUntyped = "torch.storage\nUntypedStorage";
// No name of a pickle: what a tensor is shown as whose conjugate or negative is still to be taken.
constexpr std::string_view kUnresolved = "torch.Tensor\nresolve_conj";
constexpr std::array<std::string_view, 17> kGlobals = {
    kOrderedDict, kDefaultDict,  kPlainDict, kDict,    kOldSet,  kSetName,   kSize,
    kDevice,      kEncode,       kTensor,    kTensor2, kTensor3, kParameter, kParameterWithState,
    kUntyped,     kOldByteArray, kByteArray};

std::optional<Dtype> dtype_of_global(std::string_view global) {
  if (!global.starts_with("torch\n")) return std::nullopt;
  return dtype_of_word(std::string(global.substr(6)));
}

const PickleValue& item(const Pickle& pickle, const PickleValue& list, size_t index, Kind kind,
                        const char* what) {
  if (index >= list.items.size() || pickle.values[list.items[index]].kind != kind)
    throw WrongBytes(fmt::format("{} is missing or of another kind", what));
  return pickle.values[list.items[index]];
}

std::vector<int64_t> integers(const Pickle& pickle, const PickleValue& list, const char* what) {
  constexpr size_t kMostAxes = 64;
  if (list.items.size() > kMostAxes) throw WrongBytes("a tensor of more than 64 axes");
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < list.items.size(); ++i)
    numbers.push_back(item(pickle, list, i, Kind::integer, what).integer);
  return numbers;
}

// A tensor whose numbers lockstep cannot read.
PickleValue unreadable(std::string_view global, const PickleValue& arguments) {
  PickleValue made;
  made.kind = Kind::foreign;
  made.text = global;
  made.items = arguments.items;
  return made;
}

bool is_foreign(const Pickle& pickle, const PickleValue& list, size_t index) {
  return index < list.items.size() && pickle.values[list.items[index]].kind == Kind::foreign;
}

// {"conj": True}: the numbers in the file are not yet those of the tensor.
bool is_to_be_resolved(const Pickle& pickle, const PickleValue& arguments, size_t index) {
  if (index >= arguments.items.size()) return false;
  const PickleValue& metadata = pickle.values[arguments.items[index]];
  for (size_t i = 1; i < metadata.items.size(); i += 2)
    if (const PickleValue& value = pickle.values[metadata.items[i]];
        value.kind == Kind::boolean && value.integer != 0)
      return true;
  return false;
}

// storage, offset, size, stride, requires_grad, backward_hooks[, dtype of v3][, metadata]
PickleValue rebuilt(Pickle* pickle, std::string_view global, const PickleValue& arguments) {
  const bool third = global == kTensor3;
  if (is_foreign(*pickle, arguments, 0))  // of quantized numbers, say
    return unreadable(pickle->values[arguments.items[0]].text, arguments);
  if (third && is_foreign(*pickle, arguments, 6))  // a dtype that lockstep does not know
    return unreadable(pickle->values[arguments.items[6]].text, arguments);
  if (is_to_be_resolved(*pickle, arguments, third ? 7 : 6))
    return unreadable(kUnresolved, arguments);
  const PickleValue& storage = item(*pickle, arguments, 0, Kind::storage, "a tensor's storage");
  CheckpointTensor tensor;
  tensor.dtype = storage.dtype;
  if (third) {
    const auto dtype =
        dtype_of_global(item(*pickle, arguments, 6, Kind::global, "a tensor's dtype").text);
    if (!dtype) throw WrongBytes("a tensor of a dtype that lockstep does not know");
    tensor.dtype = *dtype;
  } else if (storage.untyped) {
    throw WrongBytes("a tensor of a storage without a dtype");
  }
  tensor.shape = integers(*pickle, item(*pickle, arguments, 2, Kind::list, "a shape"), "a size");
  tensor.strides =
      integers(*pickle, item(*pickle, arguments, 3, Kind::list, "strides"), "a stride");
  if (tensor.shape.size() != tensor.strides.size())
    throw WrongBytes("a tensor with other numbers of sizes and strides");
  place(storage.storage, item(*pickle, arguments, 1, Kind::integer, "an offset").integer,
        "a tensor", &tensor);
  PickleValue made;
  made.kind = Kind::tensor;
  made.integer = static_cast<int64_t>(pickle->tensors.size());
  pickle->tensors.push_back(std::move(tensor));
  return made;
}

// OrderedDict() and OrderedDict([[key, value], ...])
PickleValue dict_of(Pickle* made, const PickleValue& arguments) {
  const Pickle& pickle = *made;
  PickleValue dict;
  dict.kind = Kind::dict;
  if (arguments.items.empty()) return dict;
  const PickleValue& pairs = item(pickle, arguments, 0, Kind::list, "items of a dictionary");
  made->copied += pairs.items.size();
  if (made->copied > kMostPickleValues) throw WrongBytes("more values than lockstep reads");
  for (size_t i = 0; i < pairs.items.size(); ++i) {
    const PickleValue& pair = item(pickle, pairs, i, Kind::list, "an item of a dictionary");
    if (pair.items.size() != 2) throw WrongBytes("an item of a dictionary that is no pair");
    dict.items.insert(dict.items.end(), pair.items.begin(), pair.items.end());
  }
  return dict;
}

}  // namespace

bool makes_a_tensor(std::string_view global) {
  return global.starts_with("torch._utils\n") || global == kUnresolved ||
         (global.starts_with("torch\n") && global.ends_with("Storage"));
}

bool is_known_global(std::string_view module, std::string_view name) {
  const std::string global = fmt::format("{}\n{}", module, name);
  for (std::string_view known : kGlobals)
    if (global == known) return true;
  return dtype_of_storage(global).has_value() || dtype_of_global(global).has_value();
}

PickleValue storage_of(const Pickle& pickle, const PickleValue& id, const StorageFiles& files) {
  if (id.kind != Kind::list ||
      item(pickle, id, 0, Kind::text, "a storage's word").text != "storage")
    throw WrongBytes("refers to something that is no storage");
  if (is_foreign(pickle, id, 1)) return unreadable(pickle.values[id.items[1]].text, id);
  const std::string_view type = item(pickle, id, 1, Kind::global, "a storage's type").text;
  const std::string key(item(pickle, id, 2, Kind::text, "a storage's name").text);
  const int64_t numel = item(pickle, id, 4, Kind::integer, "a storage's size").integer;
  const auto dtype = dtype_of_storage(type);
  if (!dtype && type != kUntyped)
    throw WrongBytes("a storage of a type that lockstep does not know");
  PickleValue made;
  made.kind = Kind::storage;
  made.dtype = dtype.value_or(Dtype::uint8);
  made.untyped = !dtype;
  const auto found = files.files.find(files.folder + key);
  if (found == files.files.end())
    throw WrongBytes(fmt::format("storage {} is not in the file", key));
  made.storage = found->second;
  const int64_t width = bytes_of(made.dtype);
  if (numel < 0 || numel > INT64_MAX / width ||
      static_cast<uint64_t>(numel * width) != made.storage.size())
    throw WrongBytes(fmt::format("storage {} should have {} elements of {} {}, and has {} bytes",
                                 key, numel, width, width == 1 ? "byte" : "bytes",
                                 made.storage.size()));
  return made;
}

PickleValue called(Pickle* pickle, std::string_view global, const PickleValue& arguments) {
  PickleValue made;
  if (global == kTensor || global == kTensor2 || global == kTensor3)
    return rebuilt(pickle, global, arguments);
  if ((global == kParameter || global == kParameterWithState) && is_foreign(*pickle, arguments, 0))
    return unreadable(pickle->values[arguments.items[0]].text, arguments);
  if (global == kParameter || global == kParameterWithState)
    return item(*pickle, arguments, 0, Kind::tensor, "a parameter's tensor");
  if (global == kOrderedDict || global == kPlainDict || global == kDict)
    return dict_of(pickle, arguments);
  if (global == kDefaultDict) {  // its argument makes what is missing
    made.kind = Kind::dict;
    return made;
  }
  if (global == kSize) {
    const PickleValue& size = item(*pickle, arguments, 0, Kind::list, "a size");
    (void)integers(*pickle, size, "a size");
    return size;
  }
  if (global == kOldSet || global == kSetName) return unreadable(kSetName, arguments);
  made.kind = Kind::opaque;
  if (global == kDevice || global == kEncode) return made;
  if (global == kOldByteArray || global == kByteArray) return made;
  throw WrongBytes("a call of what torch.save does not call");
}

namespace {}  // namespace

std::string foreign_type(const PickleValue& value) {
  std::string name(value.text);
  std::replace(name.begin(), name.end(), '\n', '.');
  return name;
}

std::vector<bool> lead_to_tensors(const Pickle& pickle) {
  constexpr int kRounds = 64;
  std::vector<bool> leads(pickle.values.size());
  bool changed = true;
  for (int pass = 0; changed && pass < kRounds; ++pass) {
    changed = false;
    for (size_t i = 0; i < leads.size(); ++i) {
      if (leads[i]) continue;
      const PickleValue& value = pickle.values[i];
      leads[i] = value.kind == Kind::tensor || value.kind == Kind::storage ||
                 (value.kind == Kind::foreign && makes_a_tensor(value.text)) ||
                 std::any_of(value.items.begin(), value.items.end(),
                             [&](uint32_t item) { return leads[item]; });
      changed = changed || leads[i];
    }
  }
  if (changed) leads.assign(leads.size(), true);
  return leads;
}

}  // namespace lockstep
