#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace lockstep {

// The entries of a zip archive by name, in place: nothing is unpacked, no path is followed. Zip64,
// as torch.save writes it. Checksums are not looked at, for PyTorch can be told to write none.
// Throws WrongBytes: encrypted entries, entries that leave the archive or overlap, two of one name.
struct ZipEntries {
  std::map<std::string, std::span<const std::byte>> bytes;  // of compressed ones as they are
  std::string compressed;  // name of the first that is; empty: none
};
ZipEntries zip_entries(std::span<const std::byte> bytes);

}  // namespace lockstep
