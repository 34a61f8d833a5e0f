#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace lockstep {

// The entries of a zip archive by name, in place: nothing is unpacked, no path is followed. Zip64,
// as torch.save writes it. Checksums are not compared, for PyTorch can be told to write none.
// Throws WrongBytes: encrypted entries, entries that leave the archive or overlap, two of one name.
struct ZipEntries {
  std::map<std::string, std::span<const std::byte>> bytes;  // of compressed ones as they are
  std::map<std::string, uint16_t> packed;     // of compressed ones the method; 8: deflate
  std::map<std::string, uint32_t> checksums;  // crc32 of what is unpacked; 0 may mean none
};
bool is_zip(std::span<const std::byte> bytes);
ZipEntries zip_entries(std::span<const std::byte> bytes);

}  // namespace lockstep
