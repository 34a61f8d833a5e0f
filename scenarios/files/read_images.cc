#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/base/check.h"
#include "scenarios/base/foreign_file.h"
#include "scenarios/files/formats.h"

namespace lockstep {
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
