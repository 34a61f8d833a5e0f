#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

#include "sim/tools/compare/checkpoint.h"
#include "sim/weights/save.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep::testing {

// Tensors with memory of their own.
class Tensors {
 public:
  template <class T>
  Tensors& add(const std::string& name, Dtype dtype, std::vector<int64_t> shape,
               const std::vector<T>& values) {
    std::vector<std::byte>& bytes = memory_.emplace_back(values.size() * sizeof(T) + 1);
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), values.size() * sizeof(T));
    CheckpointTensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.strides.assign(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) tensor.strides[i - 1] = tensor.strides[i] * shape[i];
    tensor.shape = std::move(shape);
    tensor.first = bytes.data();
    all_.push_back(tensor);
    return *this;
  }
  Tensors& floats(const std::string& name, std::vector<int64_t> shape,
                  const std::vector<float>& values) {
    return add(name, Dtype::float32, std::move(shape), values);
  }
  const std::vector<CheckpointTensor>& all() const { return all_; }

 private:
  std::deque<std::vector<std::byte>> memory_;
  std::vector<CheckpointTensor> all_;
};

class FolderTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    return temporary_.write(name, bytes);
  }
  // The error of a file of these bytes; empty: there is none.
  std::string error_of(const std::string& bytes) const {
    const auto checkpoint = read_weights_file(write("file", bytes));
    if (checkpoint) return "";
    EXPECT_EQ(checkpoint.errors().front().file, folder_ + "/file");
    return checkpoint.errors().front().message;
  }

 private:
  const TemporaryFolder temporary_;

 protected:
  const std::string& folder_ = temporary_.path();
};

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors) names.push_back(tensor.name);
  return names;
}

template <class T>
std::vector<T> values_of(const CheckpointTensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.numel()));
  if (!values.empty()) std::memcpy(values.data(), tensor.first, values.size() * sizeof(T));
  return values;
}

}  // namespace lockstep::testing
