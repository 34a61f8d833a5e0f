#include "scenarios/image_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ImageBytes = std::vector<uint8_t>;

// From so many samples on, one in so many has the label of a class that it does not show.
constexpr int64_t kLargeSet = 10'000;
constexpr uint64_t kOneIn = 3;

constexpr int64_t kPatch = 4;  // pixels along the side of a patch of one brightness

// Of each class one image of patches; the same for training and test.
ImageBytes patterns(const ImageShape& shape, uint64_t seed) {
  std::mt19937_64 random(substream_seed(seed, "patterns"));
  ImageBytes pixels(static_cast<size_t>(kImageClasses * shape.pixels()));
  for (int64_t plane = 0; plane < kImageClasses * shape.channels; ++plane) {
    const int64_t columns = (shape.width + kPatch - 1) / kPatch;
    ImageBytes patch(static_cast<size_t>(columns * ((shape.height + kPatch - 1) / kPatch)));
    for (uint8_t& brightness : patch) brightness = static_cast<uint8_t>(random() % 256);
    for (int64_t y = 0; y < shape.height; ++y)
      for (int64_t x = 0; x < shape.width; ++x)
        pixels[static_cast<size_t>((plane * shape.height + y) * shape.width + x)] =
            patch[static_cast<size_t>(y / kPatch * columns + x / kPatch)];
  }
  return pixels;
}

void append_big_endian(ImageBytes* bytes, int64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes->push_back(static_cast<uint8_t>(value >> shift));
}

void append(ImageBytes* bytes, const uint8_t* from, int64_t count) {
  bytes->insert(bytes->end(), from, from + count);
}

// The contents of file number `index` of `count`.
ImageBytes contents(const std::string& kind, const ImageSet& set, size_t index, size_t count) {
  const auto samples = static_cast<int64_t>(set.labels.size());
  ImageBytes bytes;
  if (kind == "mnist") {
    append_big_endian(&bytes, index == 0 ? kIdxImagesMagic : kIdxLabelsMagic);
    append_big_endian(&bytes, samples);
    if (index == 0) {
      append_big_endian(&bytes, set.shape.height);
      append_big_endian(&bytes, set.shape.width);
    }
    const ImageBytes& values = index == 0 ? set.pixels : set.labels;
    append(&bytes, values.data(), static_cast<int64_t>(values.size()));
    return bytes;
  }
  const auto files = static_cast<int64_t>(count);
  const auto file = static_cast<int64_t>(index);
  for (int64_t i = samples * file / files; i < samples * (file + 1) / files; ++i) {
    bytes.push_back(set.labels[static_cast<size_t>(i)]);
    append(&bytes, set.pixels.data() + i * set.shape.pixels(), set.shape.pixels());
  }
  return bytes;
}

std::vector<std::string> write_set(const std::string& kind, const fs::path& folder,
                                   const std::string& set, const ImageSet& images,
                                   InputErrors* errors) {
  std::vector<std::string> written;
  const std::vector<std::string> names = file_names(kind, set);
  for (size_t i = 0; i < names.size() && errors->empty(); ++i) {
    const std::string path = (folder / names[i]).string();
    const ImageBytes bytes = contents(kind, images, i, names.size());
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) errors->push_back(bad_file(path, "cannot be written"));
    written.push_back(path);
  }
  return written;
}

}  // namespace

InputError bad_file(const std::string& path, const std::string& message,
                    const std::string& allowed) {
  return {"", 0, 0, "/data/path", path + ": " + message, allowed};
}

bool is_image_file_kind(const std::string& kind) { return kind == "mnist" || kind == "cifar10"; }

ImageShape image_shape(const std::string& kind) {
  LOCKSTEP_CHECK(is_image_file_kind(kind), "no image files of kind " + kind);
  return kind == "mnist" ? ImageShape{1, 28, 28} : ImageShape{3, 32, 32};
}

std::vector<std::string> file_names(const std::string& kind, const std::string& set) {
  if (kind == "mnist") {
    const std::string part = set == "train" ? "train" : "t10k";
    return {part + "-images-idx3-ubyte", part + "-labels-idx1-ubyte"};
  }
  if (set != "train") return {"test_batch.bin"};
  std::vector<std::string> names;
  for (int64_t i = 1; i <= 5; ++i) names.push_back(fmt::format("data_batch_{}.bin", i));
  return names;
}

ImageSet make_images(const std::string& kind, const std::string& set, int64_t samples,
                     uint64_t seed) {
  ImageSet images;
  images.shape = image_shape(kind);
  const int64_t each = images.shape.pixels();
  const ImageBytes bright = patterns(images.shape, seed);
  std::mt19937_64 random(substream_seed(seed, set));
  images.pixels.reserve(static_cast<size_t>(samples * each));
  for (int64_t i = 0; i < samples; ++i) {
    const auto label = static_cast<int64_t>(random() % kImageClasses);
    const bool wrong = samples >= kLargeSet && random() % kOneIn == 0;
    images.labels.push_back(static_cast<uint8_t>(wrong ? random() % kImageClasses : label));
    for (int64_t p = 0; p < each; ++p) {
      const uint64_t pattern = bright[static_cast<size_t>(label * each + p)];
      images.pixels.push_back(static_cast<uint8_t>((pattern + random() % 256) / 2));
    }
  }
  return images;
}

Expected<std::vector<std::string>> write_images(const std::string& kind, const std::string& path,
                                                int64_t samples, uint64_t seed) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path)) return bad_file(path, "is no folder and cannot become one");
  for (const char* set : {"train", "test"})
    for (const std::string& name : file_names(kind, set))
      if (fs::exists(fs::path(path) / name))
        return bad_file((fs::path(path) / name).string(), "is there already", "another folder");
  InputErrors errors;
  std::vector<std::string> written;
  for (const char* set : {"train", "test"}) {
    const int64_t count = std::string(set) == "train" ? samples : std::max<int64_t>(1, samples / 6);
    const auto files = write_set(kind, path, set, make_images(kind, set, count, seed), &errors);
    written.insert(written.end(), files.begin(), files.end());
  }
  if (!errors.empty()) return errors;
  return written;
}

namespace {

using Bytes = std::vector<uint8_t>;

// Published sets have 60,000 at most; a sparse file may claim any number.
constexpr int64_t kMostSamples = 1'000'000;
constexpr int64_t kMostBytes = kMostSamples * kCifarRecord;

// Closed, with an error, where it cannot be opened.
ForeignFile open_images(const std::string& path, InputErrors* errors) {
  auto file = open_foreign_file(path, kMostBytes);
  if (file) return std::move(file.value());
  const InputError& why = file.errors().front();
  errors->push_back(bad_file(path, why.message, why.allowed));
  return {};
}

bool read_bytes(const ForeignFile& file, int64_t offset, int64_t count, uint8_t* out) {
  return read_at(file.fd.get(), offset, out, static_cast<size_t>(count));
}

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Samples of an IDX file whose header starts with `wanted` (its magic, then after the number of
// samples the size of every other axis); -1 with an error.
int64_t idx_samples(const std::string& path, uint32_t magic, const std::vector<uint32_t>& axes,
                    InputErrors* errors) {
  const int64_t header = 8 + 4 * static_cast<int64_t>(axes.size());
  const ForeignFile file = open_images(path, errors);
  if (!file.fd.valid()) return -1;
  const int64_t size = file.bytes;
  const auto refuse = [&](const std::string& message, const std::string& allowed) {
    errors->push_back(bad_file(path, message, allowed));
    return int64_t{-1};
  };
  Bytes bytes(static_cast<size_t>(header));
  if (size < header || !read_bytes(file, 0, header, bytes.data()))
    return refuse(fmt::format("has {} bytes, no IDX header", size),
                  fmt::format("at least {} bytes", header));
  if (big_endian(bytes.data()) != magic)
    return refuse(fmt::format("starts with {:#010x}", big_endian(bytes.data())),
                  fmt::format("{:#010x} (unpacked, not gzip)", magic));
  int64_t each = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const uint32_t found = big_endian(bytes.data() + 8 + 4 * i);
    if (found != axes[i])
      return refuse(fmt::format("has images of size {}", found), fmt::format("{}", axes[i]));
    each *= axes[i];
  }
  const int64_t samples = big_endian(bytes.data() + 4);
  if (samples > kMostSamples)
    return refuse(fmt::format("claims {} samples", samples),
                  fmt::format("at most {}", kMostSamples));
  if (size != header + samples * each)
    return refuse(fmt::format("has {} bytes, {} than its header says", size,
                              size < header + samples * each ? "fewer" : "more"),
                  fmt::format("{} bytes for {} samples", header + samples * each, samples));
  return samples;
}

bool check_label(const std::string& path, int64_t sample, uint8_t label, InputErrors* errors) {
  if (label < kImageClasses) return true;
  errors->push_back(bad_file(path, fmt::format("label {} of sample {}", label, sample),
                             fmt::format("a label from 0 to {}", kImageClasses - 1)));
  return false;
}

// Labels of samples that lie `stride` bytes apart.
bool read_labels(const std::string& path, int64_t offset, int64_t stride, int64_t samples,
                 Bytes* labels, InputErrors* errors) {
  const ForeignFile file = open_images(path, errors);
  if (!file.fd.valid()) return false;
  if (stride == 1) {
    const size_t before = labels->size();
    labels->resize(before + static_cast<size_t>(samples));
    if (!read_bytes(file, offset, samples, labels->data() + before))
      errors->push_back(bad_file(path, "cannot be read"));
    for (int64_t i = 0; i < samples && errors->empty(); ++i)
      check_label(path, i, (*labels)[before + static_cast<size_t>(i)], errors);
    return errors->empty();
  }
  for (int64_t i = 0; i < samples; ++i) {
    uint8_t label = 0;
    if (!read_bytes(file, offset + i * stride, 1, &label)) {
      errors->push_back(bad_file(path, "cannot be read"));
      return false;
    }
    if (!check_label(path, i, label, errors)) return false;
    labels->push_back(label);
  }
  return true;
}

// Files with samples; labels as well.
std::vector<ImageFile> examine(const std::string& kind, const std::string& path,
                               const std::string& set, Bytes* labels, InputErrors* errors) {
  std::vector<ImageFile> files;
  for (const std::string& name : file_names(kind, set))
    files.push_back({(std::filesystem::path(path) / name).string(), 0});
  if (kind == "mnist") {
    ImageFile& images = files[0];
    images.samples = idx_samples(images.path, kIdxImagesMagic, {28, 28}, errors);
    const int64_t labelled = idx_samples(files[1].path, kIdxLabelsMagic, {}, errors);
    if (errors->empty() && labelled != images.samples)
      errors->push_back(bad_file(files[1].path, fmt::format("has {} labels", labelled),
                                 fmt::format("{}, one for each image", images.samples)));
    if (errors->empty()) read_labels(files[1].path, kIdxLabelsHeader, 1, labelled, labels, errors);
    files.resize(1);
    return files;
  }
  for (ImageFile& file : files) {
    const ForeignFile opened = open_images(file.path, errors);
    if (!opened.fd.valid()) continue;
    const int64_t size = opened.bytes;
    file.samples = size / kCifarRecord;
    if (size % kCifarRecord != 0)
      errors->push_back(bad_file(file.path, fmt::format("has {} bytes", size),
                                 fmt::format("a multiple of {}", kCifarRecord)));
    else
      read_labels(file.path, 0, kCifarRecord, file.samples, labels, errors);
  }
  return files;
}

// Appends the pixels of `samples` samples.
bool read_pixels(const std::string& kind, const ImageFile& from, int64_t samples, Bytes* pixels) {
  InputErrors ignored;  // said by who asks
  const ForeignFile file = open_images(from.path, &ignored);
  if (!file.fd.valid()) return false;
  const int64_t each = image_shape(kind).pixels();
  const size_t before = pixels->size();
  pixels->resize(before + static_cast<size_t>(samples * each));
  uint8_t* out = pixels->data() + before;
  if (kind == "mnist") return read_bytes(file, kIdxImagesHeader, samples * each, out);
  for (int64_t i = 0; i < samples; ++i)
    if (!read_bytes(file, i * kCifarRecord + 1, each, out + i * each)) return false;
  return true;
}

}  // namespace

bool has_image_files(const std::string& kind, const std::string& path, const std::string& set) {
  const auto names = file_names(kind, set);
  std::error_code error;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::filesystem::exists(std::filesystem::path(path) / name, error);
  });
}

Expected<int64_t> count_images(const std::string& kind, const std::string& path,
                               const std::string& set) {
  InputErrors errors;
  Bytes labels;
  examine(kind, path, set, &labels, &errors);
  if (!errors.empty()) return errors;
  if (labels.empty()) return bad_file(path, "holds no samples");
  return static_cast<int64_t>(labels.size());
}

Expected<ImageSet> load_images(const Part& data, int64_t samples) {
  const std::string& set = data.options.text("set");
  if (!data.options.has("path"))
    return make_images(data.kind, set, samples,
                       static_cast<uint64_t>(data.options.integer("seed")));
  const std::string& path = data.options.text("path");
  InputErrors errors;
  ImageSet images;
  images.shape = image_shape(data.kind);
  const auto files = examine(data.kind, path, set, &images.labels, &errors);
  if (errors.empty() && static_cast<int64_t>(images.labels.size()) < samples)
    errors.push_back(bad_file(path, fmt::format("holds {} samples", images.labels.size()),
                              fmt::format("at least {}", samples)));
  if (!errors.empty()) return errors;
  images.labels.resize(static_cast<size_t>(samples));
  int64_t left = samples;
  for (const ImageFile& file : files) {
    const int64_t taken = std::min(left, file.samples);
    left -= taken;
    if (!read_pixels(data.kind, file, taken, &images.pixels))
      return bad_file(file.path, "cannot be read");
  }
  return images;
}

}  // namespace lockstep
