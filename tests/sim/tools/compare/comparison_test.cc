#include <cmath>
#include <limits>

#include "sim/tools/compare/comparison.h"
#include "sim/weights/save.h"
#include "tests/sim/tools/compare/made.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RowMajorStrides, CountFromTheLastAxis) {
  EXPECT_THAT(row_major_strides({2, 3, 4}, "t"), ElementsAre(12, 4, 1));
  EXPECT_THAT(row_major_strides({2, 0, 4}, "t"), ElementsAre(4, 4, 1));
  EXPECT_TRUE(row_major_strides({}, "t").empty());
  EXPECT_THROW(row_major_strides({3, int64_t{1} << 61, 4}, "t"), WrongBytes);
  EXPECT_THROW(row_major_strides({2, INT64_MAX}, "t"), WrongBytes);
}

class Folders : public testing::FolderTest {};

TEST_F(Folders, PairsByRelativeNameInOrderOfNumbers) {
  for (const char* name : {"a/step-2/rank-0.pt", "a/step-10/rank-0.pt", "a/step-10/rank-1.pt",
                           "a/notes.txt", "a/only.safetensors", "b/step-2/rank-0.pt",
                           "b/step-10/rank-0.safetensors", "b/step-10/rank-1.pt", "b/new.pth"})
    write(name, "x");
  const auto pairs = pair_files(folder_ + "/a", folder_ + "/b");
  ASSERT_TRUE(pairs);
  std::vector<std::string> found;
  for (const FilePair& pair : pairs.value())
    found.push_back(pair.name + (pair.a.empty() ? " b" : pair.b.empty() ? " a" : ""));
  EXPECT_THAT(found, ElementsAre("new.pth b", "only.safetensors a", "step-2/rank-0.pt",
                                 "step-10/rank-0.pt", "step-10/rank-1.pt"));
  EXPECT_THAT(pairs.value()[3].b, HasSubstr("b/step-10/rank-0.safetensors"));
}

TEST_F(Folders, BadInput) {
  write("a/x.pt", "x");
  std::filesystem::create_directory(folder_ + "/empty");
  EXPECT_FALSE(pair_files(folder_ + "/a", folder_ + "/a/x.pt"));
  EXPECT_FALSE(pair_files(folder_ + "/a", folder_ + "/absent"));
  EXPECT_FALSE(pair_files(folder_ + "/a", folder_ + "/empty"));
  EXPECT_TRUE(pair_files(folder_ + "/a/x.pt", folder_ + "/a/x.pt"));
}

TEST_F(Folders, AnExportHasPyTorchsNames) {
  const std::string header = "\x93NUMPY\x01" + std::string("\0\x06\0{'a'}\n", 9);
  const auto array = [&](const std::string& name, auto value) {
    write("e/" + name, header + std::string(reinterpret_cast<const char*>(&value), sizeof value));
  };
  array("p.npy", 1.5F);
  array("m.npy", 2.5F);
  array("s.npy", int64_t{7});
  array("l.npy", int64_t{16});
  const std::string f = R"("dtype":"float32","shape":[1])", i = R"("dtype":"int64","shape":[1])";
  write("e/manifest.json", R"({"final":{"parameters":[{"name":"fc.weight","file":"p.npy",)" + f +
                               R"(}],"buffers":[{"name":"none","file":null}],"optimizer_state":[
      {"name":"fc.weight.loss_scale_log2","file":"l.npy",)" +
                               i + R"(},{"name":"fc.weight.exp_avg","file":"m.npy",)" + f +
                               R"(},{"name":"fc.weight.step","file":"s.npy",)" + i + "}]}}");
  const auto state = read_export(folder_ + "/e");
  ASSERT_TRUE(state) << to_text(state.errors().front());
  Checkpoint checkpoint;
  checkpoint.tensors = state.value().tensors;
  EXPECT_THAT(testing::names_of(checkpoint),
              ElementsAre("state_dict/fc.weight", "other_state/fc.weight.loss_scale_log2",
                          "optimizer/state/0/exp_avg", "optimizer/state/0/step"));
  EXPECT_THAT(testing::values_of<float>(checkpoint.tensors[3]), ElementsAre(7));
  EXPECT_THAT(testing::values_of<float>(checkpoint.tensors[2]), ElementsAre(2.5F));
  EXPECT_TRUE(checkpoint.tensors[3].shape.empty());
  array("p.npy", uint8_t{0});
  EXPECT_FALSE(read_export(folder_ + "/e"));
  EXPECT_FALSE(read_export(folder_ + "/absent"));
}

TEST_F(Folders, ASavedFileReplacesAnotherInOneStep) {
  testing::Tensors made;
  made.floats("state_dict/w", {1}, {1});
  const std::string path = write("w.safetensors", "old");
  save_checkpoint(path, made.all());
  EXPECT_EQ(testing::read_whole(path), safetensors_bytes(made.all()));
  EXPECT_THROW(save_checkpoint("/nowhere/w.pt", made.all()), std::runtime_error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_EQ(why_no_checkpoint_name("a.pt"), "");
  EXPECT_NE(why_no_checkpoint_name("a.bin"), "");
}

using Outcome = TensorComparison::Outcome;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::optional<TensorDifference> difference(const std::vector<float>& a, const std::vector<float>& b,
                                           Tolerance tolerance = {}) {
  testing::Tensors made;
  const auto size = static_cast<int64_t>(a.size());
  made.floats("a", {size}, a).floats("b", {size}, b);
  return compare_tensors(made.all()[0], made.all()[1], tolerance);
}

template <class T>
std::optional<TensorDifference> of_dtype(Dtype dtype, std::vector<int64_t> shape,
                                         const std::vector<T>& a, const std::vector<T>& b) {
  testing::Tensors made;
  made.add("a", dtype, shape, a).add("b", dtype, shape, b);
  return compare_tensors(made.all()[0], made.all()[1], {});
}

TEST(CompareTensors, BitForBit) {
  EXPECT_FALSE(difference({1, 2}, {1, 2}));
  const auto found = difference({1, 2, 3}, {1, std::nextafter(2.0F, 3.0F), 4});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->element, 1);
  EXPECT_EQ(found->ulp, 1U);
  EXPECT_EQ(found->differing, 2);
  EXPECT_EQ(found->disagreeing, 2);
  EXPECT_EQ(found->max_ulp, 1U << 22);  // 3 and 4: half a binade
  EXPECT_DOUBLE_EQ(found->largest_error, 1);
  EXPECT_DOUBLE_EQ(found->relative_error(), 0.25);
  EXPECT_EQ(found->b_bits, 0x40000001U);
}

TEST(CompareTensors, ZerosOfTwoSignsDifferInBitsAlone) {
  const auto found = difference({0.0F}, {-0.0F});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ulp, 0U);
  EXPECT_EQ(found->relative_error(), 0);
  EXPECT_EQ(difference({0.0F}, {-0.0F}, {0, 1e-9})->disagreeing, 0);
}

TEST(CompareTensors, NaNAndInfinity) {
  EXPECT_FALSE(difference({kNaN, kInf}, {kNaN, kInf}));
  const auto found = difference({kNaN, 1}, {2, 1}, {1e9, 1e9});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->disagreeing, 1);
  EXPECT_EQ(found->ulp, kNoUlp);
  EXPECT_TRUE(std::isinf(found->largest_error));
  EXPECT_EQ(difference({kInf}, {1}, {1e9, 1e9})->disagreeing, 1);
  EXPECT_EQ(difference({1}, {kInf}, {1e9, 1e9})->disagreeing, 1);
  EXPECT_EQ(difference({-kInf}, {kInf}, {1e9, 1e9})->disagreeing, 1);
  // Another kind of NaN is another bit pattern, and no other number.
  const float other = std::bit_cast<float>(0x7fc00001U);
  EXPECT_EQ(difference({kNaN}, {other})->disagreeing, 1);
  EXPECT_EQ(difference({kNaN}, {other}, {1e-5, 0})->disagreeing, 0);
}

TEST(CompareTensors, TheToleranceIsThatOfTorch) {
  EXPECT_EQ(difference({1.1F}, {1.0F}, {0.2, 0})->disagreeing, 0);
  EXPECT_EQ(difference({1.1F}, {1.0F}, {0.05, 0})->disagreeing, 1);
  EXPECT_EQ(difference({0.1F}, {0.0F}, {1, 0})->disagreeing, 1);  // relative to b
  EXPECT_EQ(difference({0.0F}, {0.1F}, {1, 0})->disagreeing, 0);
  EXPECT_EQ(difference({0.1F}, {0.0F}, {0, 0.2})->disagreeing, 0);
  const auto found = difference({1.1F, 9}, {1.0F, 1}, {0.2, 0});
  EXPECT_EQ(found->element, 1);  // the first beyond the tolerance
  EXPECT_EQ(found->differing, 2);
  EXPECT_EQ(found->disagreeing, 1);
}

TEST(CompareTensors, EveryDtype) {
  EXPECT_EQ(of_dtype<double>(Dtype::float64, {1}, {1.0}, {std::nextafter(1.0, 2.0)})->ulp, 1U);
  const auto half = of_dtype<uint16_t>(Dtype::float16, {1}, {0x3c00}, {0xbc00});
  EXPECT_DOUBLE_EQ(half->largest_error, 2);  // 1 and -1
  EXPECT_EQ(half->ulp, 2U * 0x3c00);
  const auto brain = of_dtype<uint16_t>(Dtype::bfloat16, {1}, {0x3f80}, {0x3f81});
  EXPECT_EQ(brain->ulp, 1U);
  EXPECT_DOUBLE_EQ(brain->largest_error, 1.0 / 128);
  EXPECT_DOUBLE_EQ(of_dtype<uint8_t>(Dtype::float8_e4m3fn, {1}, {0x38}, {0x7e})->b_value, 448);
  EXPECT_DOUBLE_EQ(of_dtype<uint8_t>(Dtype::float8_e4m3fn, {1}, {0x38}, {0x01})->a_value, 1);
  EXPECT_DOUBLE_EQ(of_dtype<uint8_t>(Dtype::float8_e5m2, {1}, {0x3c}, {0x7b})->b_value, 57344);
  EXPECT_EQ(of_dtype<uint16_t>(Dtype::float16, {1}, {0x7e00}, {0x3c00})->ulp, kNoUlp);
  const auto large = of_dtype<int64_t>(Dtype::int64, {1}, {INT64_MAX}, {INT64_MAX - 1});
  EXPECT_EQ(large->ulp, 1U);
  EXPECT_DOUBLE_EQ(large->largest_error, 1);
  EXPECT_EQ(of_dtype<int64_t>(Dtype::int64, {1}, {INT64_MAX}, {INT64_MIN})->ulp, UINT64_MAX);
  EXPECT_EQ(of_dtype<uint8_t>(Dtype::boolean, {2}, {0, 1}, {0, 0})->element, 1);
  EXPECT_EQ(of_dtype<int8_t>(Dtype::int8, {1}, {-1}, {1})->ulp, 2U);
}

TEST(CompareTensors, AComplexNumberIsOneElement) {
  const auto found = of_dtype<float>(Dtype::complex64, {2}, {1, 2, 3, 4}, {1, 2, 5, 6});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->element, 1);
  EXPECT_EQ(found->differing, 1);
  EXPECT_EQ(found->a_value, 3);
  EXPECT_EQ(of_dtype<double>(Dtype::complex128, {1}, {1, 2}, {1, 3})->b_value, 3);
}

TEST(CompareTensors, ByTheirStrides) {
  testing::Tensors made;
  made.floats("rows", {2, 3}, {1, 2, 3, 4, 5, 6}).floats("columns", {3, 2}, {1, 4, 2, 5, 3, 6});
  CheckpointTensor transposed = made.all()[1];
  transposed.shape = {2, 3};
  transposed.strides = {1, 2};
  EXPECT_FALSE(compare_tensors(made.all()[0], transposed, {}));
  transposed.strides = {1, 1};
  const auto found = compare_tensors(made.all()[0], transposed, {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->element, 1);
  CheckpointTensor repeated = made.all()[0];
  repeated.shape = {2, 2, 2};
  repeated.strides = {0, 3, 0};
  CheckpointTensor other = repeated;
  EXPECT_FALSE(compare_tensors(repeated, other, {}));
  other.first += sizeof(float);
  EXPECT_EQ(compare_tensors(repeated, other, {})->differing, 8);
}

TEST(CompareTensors, EmptyAndScalar) {
  EXPECT_FALSE(of_dtype<float>(Dtype::float32, {0, 3}, {}, {}));
  EXPECT_EQ(of_dtype<float>(Dtype::float32, {}, {1}, {2})->differing, 1);
}

Checkpoint checkpoint(const testing::Tensors& tensors) {
  Checkpoint made;
  made.tensors = tensors.all();
  return made;
}

TEST(CompareCheckpoints, NamesShapesAndDtypes) {
  testing::Tensors a, b;
  a.floats("same", {1}, {1}).floats("shape", {2}, {1, 2}).floats("gone", {1}, {1});
  a.floats("dtype", {1}, {1}).floats("other", {1}, {1});
  b.floats("new", {1}, {1}).floats("other", {1}, {2}).floats("shape", {1, 2}, {1, 2});
  b.add<double>("dtype", Dtype::float64, {1}, {1}).floats("same", {1}, {1});
  const auto compared = compare_checkpoints(checkpoint(a), checkpoint(b), {});
  std::vector<std::pair<std::string, Outcome>> outcomes;
  for (const auto& tensor : compared.tensors) outcomes.emplace_back(tensor.name, tensor.outcome);
  using Pair = std::pair<std::string, Outcome>;
  EXPECT_THAT(outcomes, ::testing::ElementsAre(
                            Pair("same", Outcome::equal), Pair("shape", Outcome::other_shape),
                            Pair("gone", Outcome::only_a), Pair("dtype", Outcome::other_dtype),
                            Pair("other", Outcome::different), Pair("new", Outcome::only_b)));
  EXPECT_FALSE(compared.agrees());
  EXPECT_EQ(compared.elements, 2);
}

TEST(CompareCheckpoints, NamesOfDdpsWrapper) {
  testing::Tensors plain, wrapped, both;
  plain.floats("fc.weight", {1}, {1}).floats("model/fc.bias", {1}, {2});
  wrapped.floats("module.fc.weight", {1}, {1}).floats("model/module.fc.bias", {1}, {2});
  const auto in_b = compare_checkpoints(checkpoint(plain), checkpoint(wrapped), {});
  EXPECT_TRUE(in_b.agrees());
  EXPECT_EQ(in_b.module_in_b, 2);
  const auto in_a = compare_checkpoints(checkpoint(wrapped), checkpoint(plain), {});
  EXPECT_TRUE(in_a.agrees());
  EXPECT_EQ(in_a.module_in_a, 2);
  // A name that is there as it is comes first.
  both.floats("module.fc.weight", {1}, {5}).floats("fc.weight", {1}, {1});
  const auto with_both = compare_checkpoints(checkpoint(plain), checkpoint(both), {});
  EXPECT_EQ(with_both.tensors[0].outcome, Outcome::equal);
  EXPECT_EQ(with_both.tensors.back().outcome, Outcome::only_b);
}

TEST(CompareCheckpoints, BelowAKey) {
  testing::Tensors made;
  made.floats("a/b/w", {1}, {1}).floats("a/bb", {1}, {1}).floats("c/w", {1}, {1});
  const auto below = below_key(checkpoint(made), "a/b");
  ASSERT_TRUE(below);
  EXPECT_THAT(testing::names_of(below.value()), ::testing::ElementsAre("w"));
  const auto absent = below_key(checkpoint(made), "b");
  ASSERT_FALSE(absent);
  EXPECT_THAT(to_text(absent.errors().front()), ::testing::HasSubstr("begins with a, c"));
}

}  // namespace

}  // namespace lockstep
