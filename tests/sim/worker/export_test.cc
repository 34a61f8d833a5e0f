#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "sim/worker/export.h"

namespace lockstep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(NpyHeader, DescribesTheNumbersInAMultipleOf64Bytes) {
  const std::string header = npy_header("<f4", {2, 3});
  EXPECT_THAT(header, StartsWith(std::string("\x93NUMPY\x01\x00", 8)));
  EXPECT_THAT(header, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }"));
  EXPECT_THAT(header, EndsWith("\n"));
  EXPECT_EQ(header.size() % 64, 0U);
  const size_t said =
      static_cast<unsigned char>(header[8]) + 256U * static_cast<unsigned char>(header[9]);
  EXPECT_EQ(said, header.size() - 10);
}

TEST(NpyHeader, AScalarHasNoSizesAndOneSizeItsComma) {
  EXPECT_THAT(npy_header("<i8", {}), HasSubstr("'shape': ()"));
  EXPECT_THAT(npy_header("<i8", {7}), HasSubstr("'shape': (7, )"));
}

class NpyFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(testing::TempDir()) / "lockstep_npy_test.npy").string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string written(const at::Tensor& tensor) {
    write_npy(path_, tensor);
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string path_;
};

TEST_F(NpyFile, HoldsTheNumbersInCOrderHoweverTheTensorLies) {
  const at::Tensor turned = at::arange(6, at::kFloat).view({3, 2}).t();
  const std::string content = written(turned);
  const std::string header = npy_header("<f4", {2, 3});
  ASSERT_EQ(content.size(), header.size() + 6 * sizeof(float));
  EXPECT_EQ(content.substr(0, header.size()), header);
  const float expected[] = {0, 2, 4, 1, 3, 5};
  EXPECT_EQ(std::memcmp(content.data() + header.size(), expected, sizeof expected), 0);
}

TEST_F(NpyFile, Bfloat16ComesAsItsBits) {
  const std::string content = written(at::full({1}, 1.0, at::kBFloat16));
  EXPECT_THAT(content, HasSubstr("'<u2'"));
  EXPECT_THAT(content, EndsWith("\x80\x3f"));
}

TEST_F(NpyFile, APathThatCannotBeWrittenIsNamed) {
  const std::string bad = testing::TempDir() + "/no/such/folder/x.npy";
  try {
    write_npy(bad, at::zeros({1}));
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(bad));
  }
}

}  // namespace

}  // namespace lockstep
