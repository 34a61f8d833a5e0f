#include "tests/sim/tools/compare/made.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Safetensors : public testing::FolderTest {
 protected:
  // A file of this header, and so many bytes of data.
  static std::string file(const std::string& header, size_t data = 0) {
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
           std::string(data, 'x');
  }
  // ... with one tensor of these words.
  static std::string one(const std::string& words, size_t data = 0) {
    return file("{\"w\":{" + words + "}}", data);
  }
};

TEST_F(Safetensors, WhatIsSavedIsRead) {
  testing::Tensors made;
  made.floats("state_dict/w", {2, 2}, {1, 2, 3, 4})
      .add<uint16_t>("state_dict/h", Dtype::bfloat16, {3}, {1, 2, 3})
      .add<int64_t>("state_dict/n", Dtype::int64, {}, {7})
      .floats("optimizer/state/0/exp_avg", {2, 2}, {5, 6, 7, 8});
  const auto read = read_weights_file(write("a.safetensors", safetensors_bytes(made.all())));
  ASSERT_TRUE(read) << to_text(read.errors().front());
  EXPECT_EQ(read.value().format, "safetensors");
  EXPECT_THAT(testing::names_of(read.value()), ElementsAre("n", "w", "h"));  // widest first
  EXPECT_THAT(testing::values_of<float>(read.value().tensors[1]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(testing::values_of<int64_t>(read.value().tensors[0]), ElementsAre(7));
  EXPECT_EQ(read.value().tensors[2].dtype, Dtype::bfloat16);
}

TEST_F(Safetensors, TheLibrarysOwnFile) {
  const auto read =
      read_weights_file(LOCKSTEP_SOURCE_DIR "/tests/sim/tools/compare/data/library.safetensors");
  ASSERT_TRUE(read) << to_text(read.errors().front());
  std::vector<std::string> dtypes;
  for (const CheckpointTensor& tensor : read.value().tensors)
    dtypes.push_back(to_word(tensor.dtype));
  EXPECT_THAT(testing::names_of(read.value()), ::testing::Contains("fc1.weight"));
  EXPECT_THAT(dtypes, ::testing::IsSupersetOf({"float64", "float32", "float16", "bfloat16", "int64",
                                               "int32", "int16", "int8", "uint8", "bool"}));
}

TEST_F(Safetensors, LengthsBeyondTheFile) {
  EXPECT_THAT(error_of(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{", 9)),
              HasSubstr("header has"));
  EXPECT_THAT(error_of(std::string("\x80\0\0\0\0\0\0\0{}", 10)), HasSubstr("128 bytes"));
  EXPECT_THAT(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", 3)),
              HasSubstr("data_offsets leave the 3 bytes"));
  EXPECT_THAT(error_of("short"), HasSubstr("neither"));
}

TEST_F(Safetensors, HeadersThatAreNoneOrSayOtherThings) {
  for (const auto& [header, words] : std::vector<std::pair<std::string, std::string>>{
           {"{\"w\":", "no JSON"},
           {"{]", "no JSON"},
           {"{\"w\":3}", "a number where none belongs"},
           {"{\"w\":{\"dtype\":{}}}", "an object where none belongs"},
           {"{\"w\":{\"shape\":[[1]]}}", "a list where none belongs"},
           {"{\"w\":{\"shape\":[-1]}}", "a negative number"},
           {"{\"w\":{\"shape\":[1.5]}}", "a fraction"},
           {"{\"w\":{\"dtype\":\"F32\"}}", "incomplete"},
           {"{\"w\":{\"color\":\"F32\"}}", "unknown key color"},
           {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "dtype twice"},
           {"{\"__metadata__\":{\"a\":3}}", "__metadata__ has a number"}})
    EXPECT_THAT(error_of(file(header)), HasSubstr(words)) << header;
  EXPECT_EQ(error_of(file("{}")), "");
  EXPECT_EQ(error_of(file("{\"__metadata__\":{\"format\":\"pt\"}}   ")), "");
  EXPECT_THAT(error_of(file("{" + std::string(100'000, '['))), HasSubstr("no JSON"));
  EXPECT_THAT(error_of(file("{\"w\":{\"shape\":" + std::string(100'000, '['))),
              HasSubstr("a list"));
}

TEST_F(Safetensors, TensorsThatDoNotFit) {
  EXPECT_THAT(error_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4)),
              HasSubstr("leaves its storage"));
  EXPECT_THAT(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])", 8)),
              HasSubstr("shape and dtype need 4 bytes, data_offsets give 8"));
  EXPECT_THAT(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 8)),
              HasSubstr("data_offsets leave"));
  EXPECT_THAT(error_of(one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])", 4)),
              HasSubstr("dtype F33"));
  EXPECT_THAT(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", 9)),
              HasSubstr("no tensor has those from 4 on"));
  EXPECT_THAT(
      error_of(one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])", 4)),
      HasSubstr("beyond any file"));
  EXPECT_THAT(
      error_of(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])", 4)),
      HasSubstr("beyond any file"));
  EXPECT_EQ(error_of(one(R"("dtype":"F32","shape":[0,3],"data_offsets":[0,0])")), "");
}

TEST_F(Safetensors, TwiceOrOverlapping) {
  const std::string words = R"({"dtype":"U8","shape":[2],"data_offsets":)";
  EXPECT_THAT(error_of(file("{\"a\":" + words + "[0,2]},\"a\":" + words + "[2,4]}}", 4)),
              HasSubstr("has a twice"));
  EXPECT_THAT(error_of(file("{\"a\":" + words + "[0,2]},\"b\":" + words + "[1,3]}}", 3)),
              HasSubstr("tensor b begins at byte 1"));
  EXPECT_THAT(error_of(file("{\"a\":" + words + "[0,2]},\"b\":" + words + "[3,5]}}", 5)),
              HasSubstr("tensor b begins at byte 3"));
}

TEST_F(Safetensors, NamesDoNotSteerTheTerminal) {
  EXPECT_THAT(error_of(file(R"({"a\u001b[2J":3})")), ::testing::Not(HasSubstr("\x1b")));
}

TEST_F(Safetensors, FilesThatAreNone) {
  EXPECT_FALSE(read_weights_file(folder_ + "/absent"));
  EXPECT_FALSE(read_weights_file(folder_));
  EXPECT_THAT(error_of(""), HasSubstr("is empty"));
}

}  // namespace

}  // namespace lockstep
