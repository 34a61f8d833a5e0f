#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "scenarios/manifest.h"
#include "scenarios/workloads/workload.h"
#include "tests/scenarios/part_of.h"

namespace lockstep {
namespace {

Part resnet(const char* kind, const char* norm, int64_t width = 8, int64_t classes = 10) {
  return part_of(kind, {{"classes", classes}, {"width", width}, {"norm", std::string(norm)}});
}

Part branches(const char* unused) {
  return part_of("branches", {{"in_features", int64_t{6}},
                              {"hidden", int64_t{5}},
                              {"out_features", int64_t{3}},
                              {"unused", std::string(unused)}});
}

Part gpt() {
  return part_of("gpt", {{"vocabulary", int64_t{31}},
                         {"context", int64_t{7}},
                         {"layers", int64_t{2}},
                         {"heads", int64_t{2}},
                         {"width", int64_t{8}}});
}

Part batch_norm_mlp(const char* norm) {
  return part_of("batch_norm_mlp", {{"in_features", int64_t{6}},
                                    {"hidden", std::vector<int64_t>{8, 4}},
                                    {"out_features", int64_t{3}},
                                    {"activation", std::string("tanh")},
                                    {"norm", std::string(norm)}});
}

Part embedding(bool sparse) {
  return part_of("embedding",
                 {{"vocabulary", int64_t{31}}, {"width", int64_t{4}}, {"sparse", sparse}});
}

std::vector<Part> small_models() {
  return {part_of("autoencoder", {{"features", int64_t{20}}, {"hidden", int64_t{6}}}),
          batch_norm_mlp("batch"),
          batch_norm_mlp("frozen"),
          batch_norm_mlp("group"),
          batch_norm_mlp("sync"),
          batch_norm_mlp("sync_equal"),
          branches("none"),
          branches("always"),
          branches("routed"),
          part_of("two_heads", {{"in_features", int64_t{6}},
                                {"hidden", int64_t{5}},
                                {"out_features", int64_t{3}},
                                {"container", std::string("nested")},
                                {"returned", std::string("both")},
                                {"in_loss", std::string("both")}}),
          part_of("mlp", {{"in_features", int64_t{6}},
                          {"hidden", std::vector<int64_t>{8, 4}},
                          {"out_features", int64_t{3}},
                          {"activation", std::string("tanh")},
                          {"bias", true},
                          {"float64_layers", std::vector<int64_t>{2}}}),
          part_of("mlp", {{"in_features", int64_t{6}},
                          {"hidden", std::vector<int64_t>{8, 4}},
                          {"out_features", int64_t{3}},
                          {"activation", std::string("relu")},
                          {"bias", true},
                          {"register", std::string("backwards")}}),
          part_of("sized_layers", {{"sizes", std::vector<int64_t>{7, 1, 30}}}),
          part_of("mnist_convnet", {{"classes", int64_t{10}}}),
          part_of("cifar_cnn", {{"classes", int64_t{10}}}),
          resnet("resnet18", "batch"),
          resnet("resnet18", "frozen"),
          resnet("resnet18", "group"),
          resnet("resnet18", "sync"),
          resnet("resnet50", "batch"),
          embedding(false),
          embedding(true),
          gpt()};
}

void expect_same(const NamedTensors& found, const std::vector<TensorSpec>& specs) {
  ASSERT_EQ(found.size(), specs.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, specs[i].name);
    EXPECT_EQ(found[i].tensor.sizes().vec(), specs[i].shape) << specs[i].name;
    EXPECT_EQ(to_word(found[i].tensor.scalar_type()), specs[i].dtype) << specs[i].name;
    EXPECT_EQ(found[i].sparse_gradient, specs[i].sparse_gradient) << specs[i].name;
  }
}

int64_t parameters_of(const Part& part) {
  int64_t sum = 0;
  const ModelManifest manifest = *manifest_of(part, "float32");
  for (const TensorSpec& parameter : manifest.parameters) sum += parameter.numel();
  return sum;
}

// Samples that the manifest says fit.
at::Tensor input_of(const ModelManifest& manifest, int64_t samples, const char* dtype) {
  std::vector<int64_t> shape = {samples};
  for (const int64_t size : manifest.input) shape.push_back(size < 0 ? 32 : size);
  if (manifest.vocabulary > 0) return at::randint(manifest.vocabulary, shape, at::kLong);
  return at::randn(shape, scalar_type(dtype));
}

NamedTensors gradients_of(Model& model, const at::Tensor& input) {
  NamedTensors gradients = model.parameters();
  for (const NamedTensor& p : gradients) p.tensor.mutable_grad() = at::Tensor();
  model.forward(input).square().sum().backward();
  for (NamedTensor& p : gradients) {
    p.tensor = p.tensor.grad();
    if (!p.tensor.defined()) continue;
    EXPECT_EQ(p.tensor.is_sparse(), p.sparse_gradient) << p.name;
    if (p.tensor.is_sparse()) p.tensor = p.tensor.to_dense();
  }
  return gradients;
}

TEST(ShippedModels, RegisterWhatTheManifestSays) {
  for (const Part& part : small_models())
    for (const char* dtype : {"float32", "float64"}) {
      SCOPED_TRACE(part.kind);
      const auto manifest = manifest_of(part, dtype);
      ASSERT_TRUE(manifest);
      const auto model = build_model(part, dtype);
      expect_same(model->parameters(), manifest->parameters);
      expect_same(model->buffers(), manifest->buffers);
    }
}

TEST(Branches, RunFirstWhatTheFirstSampleSays) {
  Part part = branches("none");
  const auto order_of = [&](double sign) {
    const auto model = build_model(part, "float32");
    std::vector<std::string> ready;
    for (const NamedTensor& parameter : model->parameters())
      parameter.tensor.register_hook(
          [&ready, name = parameter.name](const at::Tensor&) { ready.push_back(name); });
    model->forward(at::full({2, 6}, sign)).sum().backward();
    return ready;
  };
  EXPECT_EQ(order_of(1), order_of(-1));
  part.options.set("first", std::string("by_sample"));
  const auto positive = order_of(1), negative = order_of(-1);
  EXPECT_TRUE(positive.front().starts_with("right.")) << positive.front();
  EXPECT_TRUE(negative.front().starts_with("left.")) << negative.front();
}

TEST(Mlp, RepeatsLayersThatFit) {
  const auto part = [](int64_t repeat, const char* checkpointing) {
    return part_of("mlp", {{"in_features", int64_t{6}},
                           {"hidden", std::vector<int64_t>{6, 6}},
                           {"out_features", int64_t{3}},
                           {"activation", std::string("tanh")},
                           {"bias", true},
                           {"repeat", repeat},
                           {"checkpointing", std::string(checkpointing)}});
  };
  const auto firings = [&](int64_t repeat, const char* checkpointing) {
    const auto model = build_model(part(repeat, checkpointing), "float32");
    std::map<std::string, int64_t> fired;
    for (const NamedTensor& parameter : model->parameters())
      parameter.tensor.register_hook(
          [&fired, name = parameter.name](const at::Tensor&) { ++fired[name]; });
    model->forward(at::ones({2, 6})).sum().backward();
    return fired;
  };
  EXPECT_EQ(firings(3, "none")["fc2.weight"], 1);
  auto reentrant = firings(3, "reentrant");
  EXPECT_EQ(reentrant["fc2.weight"], 3);
  EXPECT_EQ(reentrant["fc1.weight"], 1);  // the first one
  EXPECT_EQ(reentrant["fc3.weight"], 1);  // 6 inputs, 3 outputs
  const at::Tensor input = at::ones({2, 6});
  const auto output = [&](int64_t repeat) {
    const auto model = build_model(part(repeat, "none"), "float32");
    for (const NamedTensor& parameter : model->parameters())
      at::Tensor(parameter.tensor).set_data(at::full(parameter.tensor.sizes(), 0.1));
    return model->forward(input);
  };
  EXPECT_FALSE(at::equal(output(1), output(2)));
}

TEST(ShippedModels, GiveWhatTheManifestSays) {
  for (const Part& part : small_models()) {
    SCOPED_TRACE(part.kind);
    const ModelManifest manifest = *manifest_of(part, "float64");
    const at::Tensor input = input_of(manifest, 4, "float64");
    const at::Tensor output = build_model(part, "float64")->forward(input);
    std::vector<int64_t> expected = {4};
    for (const int64_t size : manifest.output) expected.push_back(size < 0 ? 32 : size);
    EXPECT_EQ(output.sizes().vec(), expected);
    EXPECT_EQ(output.scalar_type(), at::kDouble);
  }
}

TEST(ShippedModels, HaveThePublishedNumbersOfParameters) {
  EXPECT_EQ(
      parameters_of(part_of("autoencoder", {{"features", int64_t{784}}, {"hidden", int64_t{128}}})),
      234'640);
  EXPECT_EQ(parameters_of(part_of("mnist_convnet", {{"classes", int64_t{10}}})), 21'840);
  EXPECT_EQ(parameters_of(part_of("cifar_cnn", {{"classes", int64_t{10}}})), 62'006);
  EXPECT_EQ(parameters_of(resnet("resnet18", "batch", 64, 1000)), 11'689'512);
  const Part resnet50 = resnet("resnet50", "batch", 64, 1000);
  EXPECT_EQ(parameters_of(resnet50), 25'557'032);
  EXPECT_EQ(manifest_of(resnet50, "float32")->parameters.size(), 161U);
}

// A sum over samples is the sum over shards, unless samples are normalized together.
TEST(ShippedModels, ShardsAddUpUnlessTheManifestSaysOtherwise) {
  for (const Part& part : small_models()) {
    SCOPED_TRACE(part.kind + " " +
                 (part.options.has("norm") ? part.options.text("norm") : std::string()));
    const ModelManifest manifest = *manifest_of(part, "float64");
    const auto model = build_model(part, "float64");
    const at::Tensor input = input_of(manifest, 6, "float64");
    const NamedTensors whole = gradients_of(*model, input);
    const NamedTensors first = gradients_of(*model, input.narrow(0, 0, 2));
    const NamedTensors second = gradients_of(*model, input.narrow(0, 2, 4));
    double error = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      if (!whole[i].tensor.defined()) continue;
      at::Tensor difference = -whole[i].tensor;
      for (const NamedTensors* part_of_it : {&first, &second})
        if ((*part_of_it)[i].tensor.defined()) difference = difference + (*part_of_it)[i].tensor;
      error = std::max(error, difference.abs().max().item<double>() /
                                  (1 + whole[i].tensor.abs().max().item<double>()));
    }
    if (manifest.batch_statistics)
      EXPECT_GT(error, 1e-4);
    else
      EXPECT_LT(error, 1e-10);
  }
}

TEST(Branches, LeaveParametersWithoutGradients) {
  const auto right_used = [](const char* unused, double feature) {
    const auto model = build_model(branches(unused), "float32");
    const at::Tensor input = at::randn({4, 6}).abs() * feature;
    return gradients_of(*model, input).at(4).tensor.defined();
  };
  EXPECT_EQ(build_model(branches("none"), "float32")->parameters().at(4).name, "right.weight");
  EXPECT_TRUE(right_used("none", 1));
  EXPECT_FALSE(right_used("always", -1));
  EXPECT_FALSE(right_used("routed", 1));
  EXPECT_TRUE(right_used("routed", -1));
}

TEST(Gpt, SeesNoLaterToken) {
  const auto model = build_model(gpt(), "float64");
  const at::Tensor input = at::randint(30, {1, 7}, at::kLong);
  at::Tensor other = input.clone();
  other[0][4].fill_(30);
  const at::Tensor change = (model->forward(input) - model->forward(other)).abs().amax({0, 2});
  EXPECT_EQ(change.narrow(0, 0, 4).max().item<double>(), 0);
  EXPECT_GT(change.narrow(0, 4, 3).min().item<double>(), 0);
}

TEST(BatchNorm, FrozenKeepsItsStatistics) {
  for (const char* norm : {"batch", "frozen"}) {
    const auto model = build_model(batch_norm_mlp(norm), "float32");
    model->forward(at::randn({8, 6}) + 3);
    const NamedTensors buffers = model->buffers();
    ASSERT_EQ(buffers.at(2).name, "bn1.num_batches_tracked");
    EXPECT_EQ(buffers[2].tensor.item<int64_t>(), norm == std::string("batch") ? 1 : 0);
    EXPECT_EQ(buffers[0].tensor.eq(0).all().item<bool>(), norm == std::string("frozen"));
  }
}

TEST(ShippedModels, MemoryFormatsMoveWeightsAndKeepTheirValues) {
  Part model = part_of("mnist_convnet", {{"classes", int64_t{3}}});
  const auto built = [&](const char* format) {
    model.options.set("memory_format", std::string(format));
    const RandomSection random(5);
    return build_model(model, "float32");
  };
  const auto usual = built("contiguous");
  const at::Tensor images = at::linspace(0, 1, 2 * 28 * 28).view({2, 1, 28, 28});
  for (const char* format : {"channels_last", "transposed", "sliced"}) {
    const auto other = built(format);
    for (size_t p = 0; p < usual->parameters().size(); ++p) {
      const at::Tensor weights = other->parameters()[p].tensor;
      EXPECT_TRUE(weights.equal(usual->parameters()[p].tensor)) << format;
      EXPECT_EQ(weights.is_non_overlapping_and_dense(),
                weights.dim() < 2 || format != std::string("sliced"));
    }
    EXPECT_TRUE(at::allclose(other->forward(images), usual->forward(images), 1e-4, 1e-6)) << format;
  }
  const auto parameters = built("channels_last")->parameters();  // conv2: 20 x 10 x 5 x 5
  EXPECT_EQ(parameters[2].tensor.strides(), (std::vector<int64_t>{250, 1, 50, 10}));
  EXPECT_EQ(built("transposed")->parameters()[4].tensor.strides(), (std::vector<int64_t>{1, 50}));
}

}  // namespace

}  // namespace lockstep
