#include "golden/stored.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

StoredGolden example() {
  StoredGolden golden;
  golden.what = "two weights";
  golden.source = "made up";
  golden.fingerprint = "none";
  golden.parameters = {{"weight", {1, 3}, {0x3dc15f00, 0xbe01a2b3, 0x00000000}},
                       {"bias", {1}, {0x3f800000}}};
  golden.settings = R"({"seed":1})";
  golden.published = {{"one_device", "weight", {0.0944, -0.1266}}, {"run", "bias", {1.0}}};
  return golden;
}

class StoredGoldenFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  std::string error_of(const std::string& text) {
    const auto loaded = load_stored_golden(write(text));
    return loaded ? "" : to_text(loaded.errors().front());
  }
  static std::string changed(const std::string& from, const std::string& to) {
    std::string text = to_text(example());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  ~StoredGoldenFile() override { std::filesystem::remove(path_); }

  const std::string path_ = ::testing::TempDir() + "stored_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".json";
};

TEST_F(StoredGoldenFile, ReadsWhatItWrote) {
  const auto loaded = load_stored_golden(write(to_text(example())));
  ASSERT_TRUE(loaded) << to_text(loaded.errors().front());
  const StoredGolden& golden = loaded.value();
  EXPECT_EQ(golden.what, "two weights");
  ASSERT_EQ(golden.parameters.size(), 2u);
  EXPECT_EQ(golden.parameters[0].shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(golden.parameters[0].bits, example().parameters[0].bits);
  EXPECT_EQ(golden.parameters[1].name, "bias");
  ASSERT_EQ(golden.published.size(), 2u);
  EXPECT_EQ(golden.published[0].values, (std::vector<double>{0.0944, -0.1266}));
  EXPECT_EQ(golden.published[1].of, "run");
  EXPECT_EQ(golden.settings, R"({"seed":1})");
  EXPECT_EQ(to_text(golden), to_text(example()));
}

TEST_F(StoredGoldenFile, AChangedFileIsBadInput) {
  EXPECT_THAT(error_of(changed("two weights", "2 weights")), HasSubstr("was changed"));
  EXPECT_THAT(error_of(changed("-0.1266", "-0.1267")), HasSubstr("was changed"));
  EXPECT_THAT(error_of(changed("\"decimals\": 4", "\"decimals\": 3")), HasSubstr("was changed"));
  EXPECT_THAT(error_of(changed("\"weight\", \"shape\"", "\"weights\", \"shape\"")),
              HasSubstr("was changed"));
}

TEST_F(StoredGoldenFile, BitsAndValuesMustBeTheSameNumbers) {
  EXPECT_THAT(error_of(changed("3f800000", "3f800001")), HasSubstr("not the same number"));
  EXPECT_THAT(error_of(changed("3dc15f00", "3dc15f0")), HasSubstr("is not a float32"));
  EXPECT_THAT(error_of(changed("3dc15f00", "3dc15fxx")), HasSubstr("8 hexadecimal digits"));
}

TEST_F(StoredGoldenFile, AWrongShapeNamesItsLine) {
  const std::string error = error_of(changed("[1,3]", "[1,4]"));
  EXPECT_THAT(error, HasSubstr("weight has 3 values; expected 4 for its shape"));
  EXPECT_THAT(error, HasSubstr(".json:9:"));
  EXPECT_THAT(error_of(changed("[1,3]", "[2147483647,2147483647,2147483647,3]")),
              HasSubstr("weight has 3 values"));
  EXPECT_THAT(error_of(changed("[1,3]", "[-1,-3]")), HasSubstr("out of range"));
}

TEST_F(StoredGoldenFile, EveryTruncationIsAnError) {
  const std::string whole = to_text(example());
  for (size_t size = 0; size + 2 < whole.size(); size += 11)
    EXPECT_THAT(error_of(whole.substr(0, size)), HasSubstr(".json")) << size;
}

TEST_F(StoredGoldenFile, MissingKeysAndFiles) {
  EXPECT_THAT(error_of(changed("\"checksum\"", "\"sum\"")), HasSubstr("without /checksum"));
  EXPECT_THAT(error_of(changed("\"bits\"", "\"bytes\"")), HasSubstr("/parameters/0/bits"));
  EXPECT_THAT(error_of("[]"), HasSubstr("without /what"));
  EXPECT_FALSE(load_stored_golden(path_ + ".absent"));
  EXPECT_FALSE(load_stored_golden(::testing::TempDir()));
}

}  // namespace
}  // namespace lockstep
