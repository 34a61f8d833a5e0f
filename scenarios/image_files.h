#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/part.h"

namespace lockstep {

// MNIST's IDX files and CIFAR-10's binary batches, without LibTorch: read, checked, and small ones
// made. Blocking file access; no state, any thread.

struct ImageShape {
  int64_t channels = 0;
  int64_t height = 0;  // rows
  int64_t width = 0;   // columns
  int64_t pixels() const { return channels * height * width; }
};

constexpr int64_t kImageClasses = 10;

// Bytes as they stand in the files.
struct ImageSet {
  ImageShape shape;
  std::vector<uint8_t> pixels;  // [samples, channels, height, width]
  std::vector<uint8_t> labels;  // [samples], below kImageClasses
};

// Data kinds that this file is about: mnist, cifar10.
bool is_image_file_kind(const std::string& kind);
ImageShape image_shape(const std::string& kind);

// Is there any file of `kind` for `set` in folder `path`?
bool has_image_files(const std::string& kind, const std::string& path, const std::string& set);

// How many samples the files of `kind` in folder `path` hold, for `set` (train | test). All sizes,
// headers and labels are looked at, the pixels are not. Bad input: a file that is missing, short,
// too long or of another kind; pointer /data/path.
Expected<int64_t> count_images(const std::string& kind, const std::string& path,
                               const std::string& set);

// The first `samples` of the data set that `data` describes: of its files or, where it has no
// path, made by its seed. Bad input as above.
Expected<ImageSet> load_images(const Part& data, int64_t samples);

// What a data set without files consists of: labels at random, and for each a pattern with noise.
// Of sets of 10,000 and more one image in three has a label at random: else they would be learned
// by heart, as real ones are not, and gradients would end as nothing but rounding. The same on
// every machine.
ImageSet make_images(const std::string& kind, const std::string& set, int64_t samples,
                     uint64_t seed);

// Writes such sets as the files of `kind` into the folder `path` (made where there is none):
// `samples` for training, a sixth of that (at least one) for test. CIFAR-10 has five files for
// training. Bad input: a folder that cannot be written to, or that holds such files already.
Expected<std::vector<std::string>> write_images(const std::string& kind, const std::string& path,
                                                int64_t samples, uint64_t seed);

// One file of a set and what it holds. MNIST: pixels and labels are files of their own.
struct ImageFile {
  std::string path;
  int64_t samples = 0;
};

// Names of the files of a set, in the order of their samples; of MNIST images, then labels.
std::vector<std::string> file_names(const std::string& kind, const std::string& set);

constexpr int64_t kIdxImagesHeader = 16, kIdxLabelsHeader = 8;
constexpr uint32_t kIdxImagesMagic = 0x803,
                   kIdxLabelsMagic = 0x801;        // unsigned bytes, 3 and 1 axes
constexpr int64_t kCifarRecord = 1 + 3 * 32 * 32;  // label, then pixels

InputError bad_file(const std::string& path, const std::string& message,
                    const std::string& allowed = "");

}  // namespace lockstep
