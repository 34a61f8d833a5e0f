#pragma once

#include <string>
#include <vector>

#include "scenarios/files/image_files.h"

namespace lockstep {

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
