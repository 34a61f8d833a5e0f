#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "scenarios/base/check.h"
#include "scenarios/base/hash.h"
#include "scenarios/files/formats.h"

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

}  // namespace lockstep
