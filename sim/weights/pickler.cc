#include "sim/weights/pickler.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace lockstep {
namespace {

const char* storage_class(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64:
      return "DoubleStorage";
    case Dtype::float32:
      return "FloatStorage";
    case Dtype::float16:
      return "HalfStorage";
    case Dtype::bfloat16:
      return "BFloat16Storage";
    case Dtype::complex128:
      return "ComplexDoubleStorage";
    case Dtype::complex64:
      return "ComplexFloatStorage";
    case Dtype::int64:
      return "LongStorage";
    case Dtype::int32:
      return "IntStorage";
    case Dtype::int16:
      return "ShortStorage";
    case Dtype::int8:
      return "CharStorage";
    case Dtype::uint8:
      return "ByteStorage";
    case Dtype::boolean:
      return "BoolStorage";
    default:
      throw std::runtime_error(fmt::format("torch.save has no storage of {}", to_word(dtype)));
  }
}

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string text(const std::string& value) {
  return "X" + raw(static_cast<uint32_t>(value.size())) + value;
}

std::string integer(int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) return "J" + raw(static_cast<int32_t>(value));
  return "\x8a\x08" + raw(value);  // LONG1
}

std::string tuple(const std::vector<int64_t>& values) {
  std::string code = "(";
  for (int64_t value : values) code += integer(value);
  return code + "t";
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

// _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())
std::string tensor_code(const CheckpointTensor& tensor, size_t index) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" +
         storage_class(tensor.dtype) + "\n" + text(std::to_string(index)) + text("cpu") +
         integer(tensor.numel()) + "tQ" + integer(0) + tuple(tensor.shape) +
         tuple(contiguous_strides(tensor.shape)) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}

std::string key_code(const std::string& key) {
  const bool digits =
      !key.empty() && key.size() < 10 &&
      std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? integer(std::stoll(key)) : text(key);
}

struct Item {
  std::string rest;  // of its name
  size_t index;
};

// Items of one key stand together from the first of them on.
std::string dict_code(const std::vector<Item>& items,
                      const std::vector<CheckpointTensor>& tensors) {
  std::vector<std::pair<std::string, std::vector<Item>>> keys;
  std::string code = "}(";
  for (const Item& item : items) {
    const size_t slash = item.rest.find('/');
    const std::string key = item.rest.substr(0, slash);
    auto place = std::find_if(keys.begin(), keys.end(),
                              [&](const auto& known) { return known.first == key; });
    if (place == keys.end()) place = keys.insert(keys.end(), {key, {}});
    place->second.push_back(
        {slash == std::string::npos ? "" : item.rest.substr(slash + 1), item.index});
  }
  for (const auto& [key, below] : keys) {
    code += key_code(key);
    code += below.size() == 1 && below[0].rest.empty()
                ? tensor_code(tensors[below[0].index], below[0].index)
                : dict_code(below, tensors);
  }
  return code + "u";
}

}  // namespace

std::string pickled(const std::vector<CheckpointTensor>& tensors) {
  std::vector<Item> items;
  for (size_t i = 0; i < tensors.size(); ++i) items.push_back({tensors[i].name, i});
  return "\x80\x02" + dict_code(items, tensors) + ".";
}

}  // namespace lockstep
