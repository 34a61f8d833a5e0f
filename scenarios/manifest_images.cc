#include <fmt/format.h>

#include "scenarios/manifest_builder.h"

namespace lockstep {
namespace {

// A residual network: units of three convolutions (deep) or two, in four stages.
struct ResNet {
  bool deep;
  std::vector<int64_t> units;  // of each stage
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
    const ManifestBuilder::Extent input = builder_.extent();
    convolution(name + "conv1", in_, width, net_.deep ? Window{1} : Window{3, stride, 1});
    normalize(name + "bn1", width);
    convolution(name + "conv2", width, width, {3, net_.deep ? stride : 1, 1});
    normalize(name + "bn2", width);
    if (net_.deep) {
      convolution(name + "conv3", width, out, {1});
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

}  // namespace lockstep
