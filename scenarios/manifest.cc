#include "scenarios/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string_view>

#include "scenarios/base/error.h"
#include "scenarios/image_files.h"
#include "scenarios/parameter_list.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

using Describe = void (*)(const Options&, ManifestBuilder&);

// One parameter each, as of an embedding whose rows are one number.
void describe_sized_layers(const Options& options, ManifestBuilder& builder) {
  int64_t number = 0;
  for (const int64_t size : options.integers("sizes"))
    builder.embedding(fmt::format("layer{}", ++number), size, 1);
  builder.shapes({1}, {1});
}

const std::map<std::string_view, Describe>& models() {
  static const std::map<std::string_view, Describe> kModels = {
      {"linear", describe_linear},
      {"mlp", describe_mlp},
      {"autoencoder", describe_autoencoder},
      {"batch_norm_mlp", describe_batch_norm_mlp},
      {"branches", describe_branches},
      {"two_heads", describe_two_heads},
      {"sized_layers", describe_sized_layers},
      {"mnist_convnet", describe_mnist_convnet},
      {"cifar_cnn", describe_cifar_cnn},
      {"resnet18", describe_resnet18},
      {"resnet50", describe_resnet50},
      {"resnet101", describe_resnet101},
      {"resnet152", describe_resnet152},
      {"resnext50_32x4d", describe_resnext50},
      {"resnext101_32x8d", describe_resnext101},
      {"vgg16", describe_vgg16},
      {"alexnet", describe_alexnet},
      {"inception_v3", describe_inception_v3},
      {"bert", describe_bert},
      {"embedding", describe_embedding},
      {"gpt", describe_gpt},
      {"parameters", describe_parameters},
  };
  return kModels;
}

}  // namespace

bool is_only_described(const std::string& model_kind) {
  static const std::set<std::string_view> kKinds = {
      "resnet101",    "resnet152", "resnext50_32x4d", "resnext101_32x8d", "vgg16", "alexnet",
      "inception_v3", "bert",      "parameters"};
  return kKinds.contains(model_kind);
}

int64_t TensorSpec::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int64_t TensorSpec::bytes() const { return numel() * dtype_bytes(dtype); }

int64_t dtype_bytes(const std::string& dtype) {
  if (dtype == "bfloat16") return 2;
  if (dtype == "float32") return 4;
  if (dtype == "float64" || dtype == "int64") return 8;
  check_failed("dtype", __FILE__, __LINE__, "dtype " + dtype + " is not known");
}

namespace {

// A fit or a sweep asks for the same few of the same plan a hundred thousand times.
struct Described {
  Part model;
  std::string dtype;
  std::vector<int64_t> sample;
  std::shared_ptr<const ModelManifest> manifest;
};
constexpr size_t kMostDescribed = 4;

std::shared_ptr<const ModelManifest> described(const Part& model, const std::string& dtype,
                                               const std::vector<int64_t>& sample) {
  const auto found = models().find(model.kind);
  if (found == models().end()) return nullptr;
  ManifestBuilder builder(model.kind, dtype, sample);
  found->second(model.options, builder);
  return std::make_shared<const ModelManifest>(builder.take());
}

}  // namespace

std::shared_ptr<const ModelManifest> manifest_of(const Part& model, const std::string& dtype,
                                                 const std::vector<int64_t>& sample) {
  thread_local std::deque<Described> last;
  for (const Described& one : last)
    if (one.dtype == dtype && one.sample == sample && one.model == model) return one.manifest;
  last.push_front({model, dtype, sample, described(model, dtype, sample)});
  if (last.size() > kMostDescribed) last.pop_back();
  return last.front().manifest;
}

namespace {

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

DataShape images(const Options& options) {
  DataShape shape;
  shape.input = {options.integer("channels"), options.integer("height"), options.integer("width")};
  if (options.text("target") == "input")
    shape.target = {numel(shape.input)};
  else
    shape.classes = options.integer("classes");
  return shape;
}

DataShape image_files(const Part& data) {
  const ImageShape image = image_shape(data.kind);
  DataShape shape;
  shape.input = {image.channels, image.height, image.width};
  if (data.options.text("target") == "input")
    shape.target = {image.pixels()};
  else
    shape.classes = kImageClasses;
  return shape;
}

}  // namespace

std::optional<DataShape> data_shape(const Part& data) {
  const Options& options = data.options;
  if (data.kind == "randn" || data.kind == "dyadic" || data.kind == "routed")
    return DataShape{{options.integer("features")}, {options.integer("targets")}};
  if (data.kind == "classes")
    return DataShape{{options.integer("features")}, {}, 0, options.integer("classes")};
  if (data.kind == "images") return images(options);
  if (is_image_file_kind(data.kind)) return image_files(data);
  if (data.kind != "tokens") return {};
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t length = options.integer("length");
  return DataShape{{length}, {length}, vocabulary, vocabulary};
}

namespace {

std::string joined(const std::string& module, const char* tensor) {
  return module.empty() ? tensor : module + "." + tensor;
}

}  // namespace

void ManifestBuilder::begin_with_pixels() {
  if (sample_.size() == 3) extent_ = {sample_[1], sample_[2]};
}

void ManifestBuilder::begin_with_tokens() {
  if (sample_.size() == 1) extent_ = {1, sample_[0]};
}

void ManifestBuilder::begin(const std::string& layer, int64_t macs, int64_t elements) {
  if (sample_.empty()) macs = elements = 0;
  manifest_.layers.push_back({layer.empty() ? model_ : layer, {}, macs, elements});
}

void ManifestBuilder::parameter(const std::string& layer, const char* name,
                                std::vector<int64_t> shape, bool sparse_gradient) {
  manifest_.layers.back().parameters.push_back(static_cast<int64_t>(manifest_.parameters.size()));
  manifest_.parameters.push_back({joined(layer, name), dtype_, std::move(shape), sparse_gradient});
}

void ManifestBuilder::linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  begin(name, in * out * places(), 0);
  parameter(name, "weight", {out, in});
  if (bias) parameter(name, "bias", {out});
}

void ManifestBuilder::convolution(const std::string& name, int64_t in, int64_t out,
                                  const Window& window, bool bias) {
  pool(window);
  const int64_t each = in / window.groups;  // channels that one of out is made from
  begin(name, each * out * window.size * window.size * places(), 0);
  parameter(name, "weight", {out, each, window.size, window.size});
  if (bias) parameter(name, "bias", {out});
}

void ManifestBuilder::stripe(const std::string& name, int64_t in, int64_t out, int64_t height,
                             int64_t width) {
  begin(name, in * out * height * width * places(), 0);
  parameter(name, "weight", {out, in, height, width});
}

void ManifestBuilder::own_bias(const std::string& name, int64_t size) {
  begin(name, 0, size * places());
  parameter(name, "bias", {size});
}

void ManifestBuilder::embedding(const std::string& name, int64_t rows, int64_t width,
                                bool sparse_gradient) {
  begin(name, 0, width * places());
  parameter(name, "weight", {rows, width}, sparse_gradient);
}

void ManifestBuilder::listed(const std::string& name, std::vector<int64_t> shape) {
  const size_t dot = name.rfind('.');
  const std::string layer = dot == std::string::npos ? name : name.substr(0, dot);
  const TensorSpec spec{name, dtype_, std::move(shape)};
  if (manifest_.layers.empty() || manifest_.layers.back().name != layer) begin(layer, 0, 0);
  LayerSpec& into = manifest_.layers.back();
  if (!sample_.empty()) (spec.shape.size() > 1 ? into.macs : into.elements) += spec.numel();
  into.parameters.push_back(static_cast<int64_t>(manifest_.parameters.size()));
  manifest_.parameters.push_back(spec);
}

void ManifestBuilder::work(const std::string& name, int64_t macs) { begin(name, macs, 0); }

// An image smaller than the window leaves nothing.
void ManifestBuilder::pool(const Window& window) {
  const auto moved = [&](int64_t side) {
    const int64_t room = side + 2 * window.padding - window.size;
    return room < 0 ? 0 : room / window.stride + 1;
  };
  extent_ = {moved(extent_.height), moved(extent_.width)};
}

void ManifestBuilder::norm(const std::string& name, int64_t channels, const std::string& kind) {
  begin(name, 0, channels * places());
  parameter(name, "weight", {channels});
  parameter(name, "bias", {channels});
  if (kind == "group" || kind == "layer") return;
  const bool given = kind == "batch" || kind == "sync" || kind == "sync_equal";
  LOCKSTEP_CHECK(given || kind == "frozen", "no norm " + kind);
  manifest_.buffers.push_back({joined(name, "running_mean"), dtype_, {channels}});
  manifest_.buffers.push_back({joined(name, "running_var"), dtype_, {channels}});
  manifest_.buffers.push_back({joined(name, "num_batches_tracked"), "int64", {}});
  if (given) manifest_.batch_statistics = true;
}

void ManifestBuilder::reverse_registration() {
  std::vector<TensorSpec> reversed;
  for (auto layer = manifest_.layers.rbegin(); layer != manifest_.layers.rend(); ++layer)
    for (int64_t& p : layer->parameters) {
      reversed.push_back(std::move(manifest_.parameters[static_cast<size_t>(p)]));
      p = static_cast<int64_t>(reversed.size()) - 1;
    }
  manifest_.parameters = std::move(reversed);
}

void ManifestBuilder::shapes(std::vector<int64_t> input, std::vector<int64_t> output,
                             int64_t vocabulary) {
  manifest_.input = std::move(input);
  manifest_.output = std::move(output);
  manifest_.vocabulary = vocabulary;
}

namespace {

std::vector<int64_t> widths_of(const Options& options) {
  std::vector<int64_t> widths = options.integers("hidden");
  widths.insert(widths.begin(), options.integer("in_features"));
  widths.push_back(options.integer("out_features"));
  return widths;
}

}  // namespace

void describe_linear(const Options& options, ManifestBuilder& builder) {
  const int64_t in = options.integer("in_features");
  const int64_t out = options.integer("out_features");
  builder.linear("", in, out, options.flag("bias"));
  builder.shapes({in}, {out});
}

void describe_mlp(const Options& options, ManifestBuilder& builder) {
  const std::vector<int64_t> widths = widths_of(options);
  std::vector<int64_t> wide;
  if (options.has("float64_layers")) wide = options.integers("float64_layers");
  for (size_t i = 1; i < widths.size(); ++i) {
    const std::string own = builder.use_dtype("float64");
    const bool is_wide = std::find(wide.begin(), wide.end(), static_cast<int64_t>(i)) != wide.end();
    if (!is_wide) builder.use_dtype(own);
    builder.linear(fmt::format("fc{}", i), widths[i - 1], widths[i], options.flag("bias"));
    builder.use_dtype(own);
  }
  if (registers_backwards(options)) builder.reverse_registration();
  builder.shapes({widths.front()}, {widths.back()});
}

void describe_autoencoder(const Options& options, ManifestBuilder& builder) {
  const int64_t features = options.integer("features");
  const int64_t hidden = options.integer("hidden");
  builder.linear("fc1", features, hidden);
  builder.linear("fc2", hidden, hidden);
  builder.linear("fc3", hidden, hidden);
  builder.linear("fc4", hidden, features);
  builder.shapes({features}, {features});
}

void describe_batch_norm_mlp(const Options& options, ManifestBuilder& builder) {
  const std::vector<int64_t> widths = widths_of(options);
  for (size_t i = 1; i < widths.size(); ++i) {
    builder.linear(fmt::format("fc{}", i), widths[i - 1], widths[i]);
    if (i + 1 < widths.size())
      builder.norm(fmt::format("bn{}", i), widths[i], options.text("norm"));
  }
  builder.shapes({widths.front()}, {widths.back()});
}

void describe_branches(const Options& options, ManifestBuilder& builder) {
  const int64_t in = options.integer("in_features");
  const int64_t hidden = options.integer("hidden");
  const int64_t out = options.integer("out_features");
  builder.linear("trunk", in, hidden);
  builder.linear("left", hidden, out);
  builder.linear("right", hidden, out);
  builder.shapes({in}, {out});
}

void describe_two_heads(const Options& options, ManifestBuilder& builder) {
  describe_branches(options, builder);
}

namespace {

// A residual network: units of three convolutions (deep) or two, in four stages.
struct ResNet {
  bool deep;
  std::vector<int64_t> units;  // of each stage
  int64_t groups = 1;          // of the convolutions over 3x3 pixels
  int64_t wider = 1;           // these have so many times the channels
};

class ResNetManifest {
 public:
  ResNetManifest(const ResNet& net, const Options& options, ManifestBuilder& builder)
      : net_(net), norm_(options.text("norm")), builder_(builder) {
    const int64_t width = options.integer("width");
    builder.begin_with_pixels();
    convolution("conv1", 3, width, {7, 2, 3});
    normalize("bn1", width);
    builder.pool({3, 2, 1});
    in_ = width;
    for (size_t stage = 0; stage < net.units.size(); ++stage)
      for (int64_t unit = 0; unit < net.units[stage]; ++unit)
        add_unit(fmt::format("layer{}.{}.", stage + 1, unit), width << stage,
                 stage > 0 && unit == 0 ? 2 : 1);
    builder.flatten();
    builder.linear("fc", in_, options.integer("classes"));
    builder.shapes({3, -1, -1}, {options.integer("classes")});
  }

 private:
  void convolution(const std::string& name, int64_t in, int64_t out, const Window& window) {
    builder_.convolution(name, in, out, window, false);
  }
  void normalize(const std::string& name, int64_t channels) {
    builder_.norm(name, channels, norm_);
  }

  // Of two or three convolutions the one over 3x3 pixels takes the stride.
  void add_unit(const std::string& name, int64_t width, int64_t stride) {
    const int64_t out = net_.deep ? 4 * width : width;
    const int64_t inner = width * net_.wider;
    const ManifestBuilder::Extent input = builder_.extent();
    convolution(name + "conv1", in_, inner, net_.deep ? Window{1} : Window{3, stride, 1});
    normalize(name + "bn1", inner);
    convolution(name + "conv2", inner, inner, {3, net_.deep ? stride : 1, 1, net_.groups});
    normalize(name + "bn2", inner);
    if (net_.deep) {
      convolution(name + "conv3", inner, out, {1});
      normalize(name + "bn3", out);
    }
    if (stride != 1 || in_ != out) {
      builder_.set_extent(input);
      convolution(name + "downsample.0", in_, out, {1, stride});
      normalize(name + "downsample.1", out);
    }
    in_ = out;
  }

  const ResNet& net_;
  const std::string norm_;
  ManifestBuilder& builder_;
  int64_t in_ = 0;
};

}  // namespace

void describe_mnist_convnet(const Options& options, ManifestBuilder& builder) {
  builder.begin_with_pixels();
  builder.convolution("conv1", 1, 10, {5});
  builder.pool({2, 2});
  builder.convolution("conv2", 10, 20, {5});
  builder.flatten();
  builder.linear("fc1", 320, 50);
  builder.linear("fc2", 50, options.integer("classes"));
  builder.shapes({1, 28, 28}, {options.integer("classes")});
}

void describe_cifar_cnn(const Options& options, ManifestBuilder& builder) {
  builder.begin_with_pixels();
  builder.convolution("conv1", 3, 6, {5});
  builder.pool({2, 2});
  builder.convolution("conv2", 6, 16, {5});
  builder.flatten();
  builder.linear("fc1", 400, 120);
  builder.linear("fc2", 120, 84);
  builder.linear("fc3", 84, options.integer("classes"));
  builder.shapes({3, 32, 32}, {options.integer("classes")});
}

void describe_resnet18(const Options& options, ManifestBuilder& builder) {
  ResNetManifest({false, {2, 2, 2, 2}}, options, builder);
}

void describe_resnet50(const Options& options, ManifestBuilder& builder) {
  ResNetManifest({true, {3, 4, 6, 3}}, options, builder);
}

void describe_resnet101(const Options& options, ManifestBuilder& builder) {
  ResNetManifest({true, {3, 4, 23, 3}}, options, builder);
}

void describe_resnet152(const Options& options, ManifestBuilder& builder) {
  ResNetManifest({true, {3, 8, 36, 3}}, options, builder);
}

void describe_resnext50(const Options& options, ManifestBuilder& builder) {
  ResNetManifest({true, {3, 4, 6, 3}, 32, 2}, options, builder);
}

void describe_resnext101(const Options& options, ManifestBuilder& builder) {
  ResNetManifest({true, {3, 4, 23, 3}, 32, 4}, options, builder);
}

// Read, and found right, by whoever made the options.
void describe_parameters(const Options& options, ManifestBuilder& builder) {
  for (const std::string& text : options.texts("parameters")) {
    const auto parameter = listed_parameter(text);
    LOCKSTEP_CHECK(parameter.has_value(), "an unchecked parameter");
    builder.listed(parameter->name, parameter->shape);
  }
  builder.shapes({1}, {1});
}

void describe_embedding(const Options& options, ManifestBuilder& builder) {
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t width = options.integer("width");
  builder.begin_with_tokens();
  builder.embedding("embedding", vocabulary, width, options.flag("sparse"));
  builder.linear("fc", width, vocabulary);
  builder.shapes({-1}, {-1, vocabulary}, vocabulary);
}

// The output head has no tensor of its own: it is the token embedding.
void describe_gpt(const Options& options, ManifestBuilder& builder) {
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t context = options.integer("context");
  const int64_t width = options.integer("width");
  builder.begin_with_tokens();
  const int64_t length = builder.places();
  builder.embedding("tokens", vocabulary, width);
  builder.embedding("positions", context, width);
  for (int64_t i = 1; i <= options.integer("layers"); ++i) {
    const std::string block = fmt::format("block{}.", i);
    builder.norm(block + "norm1", width, "layer");
    builder.linear(block + "attention.qkv", width, 3 * width);
    builder.work(block + "attention", 2 * length * length * width);
    builder.linear(block + "attention.out", width, width);
    builder.norm(block + "norm2", width, "layer");
    builder.linear(block + "fc1", width, 4 * width);
    builder.linear(block + "fc2", 4 * width, width);
  }
  builder.norm("norm", width, "layer");
  builder.work("head", length * width * vocabulary);
  builder.shapes({context}, {context, vocabulary}, vocabulary);
}

}  // namespace lockstep
