#include "scenarios/parameter_list.h"

#include <gmock/gmock.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scenarios/manifest.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/scenarios/profiler/made_training.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> listed(const std::string& content) {
  const TemporaryFolder folder;
  const auto read = read_parameter_list(folder.write("parameter_list", content));
  if (!read) return {to_text(read.errors().front())};
  std::vector<std::string> texts;
  for (const ListedParameter& parameter : read.value().parameters)
    texts.push_back(to_text(parameter));
  return texts;
}

std::string safetensors(const std::string& header) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(64, '\0');
}

TEST(ParameterList, OfJsonKeepsItsOrder) {
  EXPECT_THAT(listed(R"({"z.weight": [64, 3, 7, 7], "z.bias": [64], "a.scale": [],
                         "bn.running_mean": [64], "bn.num_batches_tracked": []})"),
              ElementsAre("z.weight 64x3x7x7", "z.bias 64", "a.scale 1"));
}

TEST(ParameterList, OfSafetensorsIsInTheOrderOfItsNames) {
  EXPECT_THAT(listed(safetensors(R"({"__metadata__": {"format": "pt"},
    "h.10.weight": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]},
    "h.2.weight": {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]},
    "h.2.bias": {"dtype": "F32", "shape": [2], "data_offsets": [24, 34]},
    "position_ids": {"dtype": "I64", "shape": [1, 512], "data_offsets": [24, 34]}})")),
              ElementsAre("h.2.bias 2", "h.2.weight 5", "h.10.weight 3x2"));
}

// Its first byte is that of the header's length, whatever character this may be.
TEST(ParameterList, OfSafetensorsMayBeginAsATextDoes) {
  for (const size_t length : {size_t{' '}, size_t{'{'}}) {
    std::string header = R"({"a": {"shape": [3]}})";
    header.resize(length, ' ');
    EXPECT_THAT(listed(safetensors(header)), ElementsAre("a 3"));
  }
}

TEST(ParameterList, WhatIsNoneIsRefusedAtItsPlace) {
  EXPECT_THAT(listed("{\n \"a\": [3],\n \"b\": [3, -1]}"),
              ElementsAre(HasSubstr("parameter_list:3:7: error: no shape")));
  EXPECT_THAT(listed(R"({"a b": [3]})"), ElementsAre(HasSubstr("\"a b\" is no name")));
  EXPECT_THAT(listed(R"({"a": [1073741824, 2]})"), ElementsAre(HasSubstr("too many numbers")));
  EXPECT_THAT(listed("{}"), ElementsAre(HasSubstr("lists no parameter")));
  EXPECT_THAT(listed(""), ElementsAre(HasSubstr("it is empty")));
  EXPECT_THAT(listed("PK\x03\x04 and so on"), ElementsAre(HasSubstr("no list of parameters")));
  EXPECT_THAT(listed(std::string(8, '\xff') + "{}"),
              ElementsAre(HasSubstr("no list of parameters")));
  EXPECT_THAT(listed(safetensors("[]")), ElementsAre(HasSubstr("no list of parameters")));
}

TEST(ParameterList, OfATraceIsTheReverseOrderOfItsGradients) {
  EXPECT_THAT(listed(MadeTraining().text()),
              ElementsAre("parameter0 64x64", "parameter1 8x64", "parameter2 8"));
  MadeTraining made;
  made.shapes.push_back({});
  EXPECT_THAT(listed(made.text()).front(), "parameter0 1");
  made.type = "c10::Half";
  const TemporaryFolder folder;
  EXPECT_EQ(read_parameter_list(folder.write("t", made.text())).value().dtype, "float16");
  EXPECT_EQ(read_parameter_list(folder.write("j", R"({"a": [3]})")).value().dtype, "");
  made.with_shapes = false;
  EXPECT_THAT(listed(made.text()), ElementsAre(HasSubstr("record_shapes=True")));
  made = {};
  made.shapes[0] = {0};
  EXPECT_THAT(listed(made.text()), ElementsAre(HasSubstr("no numbers, or too many")));
  const std::string text = MadeTraining().text();
  EXPECT_THAT(listed(text.substr(0, text.size() / 2)), ElementsAre(HasSubstr("cut off")));
}

TEST(ParameterList, ATextIsANameAndAShape) {
  EXPECT_EQ(listed_parameter("a.weight 3x2")->shape, (std::vector<int64_t>{3, 2}));
  for (const char* text : {"a", "a ", "a 0", "a 3x", "a 3y2", " 3", "a 3 2", "a. 3", "a..b 3"})
    EXPECT_FALSE(listed_parameter(text)) << text;
}

int64_t numbers_of(const ModelManifest& manifest) {
  int64_t sum = 0;
  for (const TensorSpec& parameter : manifest.parameters) sum += parameter.numel();
  return sum;
}

int64_t multiply_accumulates(const ModelManifest& manifest) {
  int64_t sum = 0;
  for (const LayerSpec& layer : manifest.layers) sum += layer.macs;
  return sum;
}

// What torchvision's documentation says of them: parameters, and GFLOPs of 224 x 224 pixels, of
// inception_v3 299 x 299.
TEST(DescribedModels, HaveTheParametersAndTheWorkOfTheirPublishedNames) {
  struct Published {
    const char* kind;
    int64_t parameters;
    double giga_macs;
    int64_t pixels = 224;
  };
  for (const Published& published :
       std::vector<Published>{{"resnet101", 44'549'160, 7.80},
                              {"resnet152", 60'192'808, 11.51},
                              {"resnext50_32x4d", 25'028'904, 4.23},
                              {"resnext101_32x8d", 88'791'336, 16.41},
                              {"vgg16", 138'357'544, 15.47},
                              {"alexnet", 61'100'840, 0.71},
                              {"inception_v3", 23'834'568, 5.71, 299}}) {
    Part part{published.kind, {}};
    part.options.set("classes", int64_t{1000});
    part.options.set("width", int64_t{64});
    part.options.set("norm", std::string("batch"));
    part.options.set("aux_logits", false);  // which are not among those GFLOPs
    const ModelManifest manifest =
        *manifest_of(part, "float32", {3, published.pixels, published.pixels});
    EXPECT_EQ(numbers_of(manifest), published.parameters) << published.kind;
    EXPECT_NEAR(static_cast<double>(multiply_accumulates(manifest)) * 1e-9, published.giga_macs,
                0.01)
        << published.kind;
    EXPECT_TRUE(is_only_described(published.kind));
  }
}

// As torchvision and transformers count them.
TEST(DescribedModels, HaveTheParametersOfTraining) {
  Part inception{"inception_v3", {}};
  inception.options.set("classes", int64_t{1000});
  inception.options.set("aux_logits", true);
  EXPECT_EQ(numbers_of(*manifest_of(inception, "float32", {3, 299, 299})), 27'161'264);
  for (const auto& [layers, width, parameters] :
       {std::tuple<int64_t, int64_t, int64_t>{12, 768, 110'106'428}, {24, 1024, 336'226'108}}) {
    Part bert{"bert", {}};
    for (const auto& [key, value] : {std::pair<const char*, int64_t>{"vocabulary", 30'522},
                                     {"context", 512},
                                     {"layers", layers},
                                     {"width", width}})
      bert.options.set(key, value);
    EXPECT_EQ(numbers_of(*manifest_of(bert, "float32", {128})), parameters);
  }
}

TEST(DescribedModels, AListIsCutIntoLayersByItsNames) {
  Part part{"parameters", {}};
  part.options.set("parameters",
                   std::vector<std::string>{"a.weight 4x3", "a.bias 4", "b.weight 5", "head 7"});
  const ModelManifest manifest = *manifest_of(part, "float32", {1});
  ASSERT_EQ(manifest.layers.size(), 3u);
  EXPECT_EQ(manifest.layers[0].name, "a");
  EXPECT_EQ(manifest.layers[0].macs, 12);
  EXPECT_EQ(manifest.layers[0].elements, 4);
  EXPECT_THAT(manifest.layers[0].parameters, ElementsAre(0, 1));
  EXPECT_EQ(manifest.layers[2].name, "head");
}

}  // namespace
}  // namespace lockstep
