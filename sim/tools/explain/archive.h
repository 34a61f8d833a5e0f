#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// A regular file of an archive, unpacked in memory: nothing is written, and its name is a name
// only.
struct ArchivedFile {
  std::string name;  // as it stands there, without a leading "./"
  std::string bytes;
  bool alone = false;  // gzip packed it by itself: named as the packed file without its ".gz"
};

struct ArchiveLimits {
  int64_t bytes = int64_t{1} << 30;  // unpacked, all together
  size_t files = 100'000;
};

// By its first bytes (300 or all there are): zip, tar, or what gzip packed.
bool is_archive(std::string_view head);

// Of a .zip (stored or deflated) or a .tar (ustar, GNU's and pax's long names), packed by gzip or
// not, or the one file that gzip packed, where neither its bytes nor its name say tar. Folders,
// links and devices are left out. Bad input, with the place: damaged, cut short, encrypted, packed
// otherwise, sparse, beyond the limits, two files of one name.
Expected<std::vector<ArchivedFile>> read_archive(const std::string& path,
                                                 const ArchiveLimits& limits = {});

}  // namespace lockstep
