#include "scenarios/files/image_files.h"
#include "scenarios/manifest.h"

namespace lockstep {
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

}  // namespace lockstep
