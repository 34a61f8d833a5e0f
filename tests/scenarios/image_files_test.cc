#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "scenarios/image_files.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

Part data(const std::string& kind, const std::string& path = "", const std::string& set = "train") {
  Part part{kind, {}};
  part.options.set("set", set);
  part.options.set("seed", int64_t{3});
  if (!path.empty()) part.options.set("path", path);
  return part;
}

struct Folder : TemporaryFolder {
  explicit Folder(const std::string& name, int64_t samples = 23) : kind(name) {
    EXPECT_TRUE(write_images(kind, path(), samples, 3));
  }
  std::string file(const std::string& name) const { return path() + "/" + name; }
  void put(const std::string& name, int64_t offset, uint8_t byte) const {
    std::fstream stream(file(name), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(offset);
    stream.put(static_cast<char>(byte));
  }
  std::string error(const std::string& set = "train") const {
    const auto count = count_images(kind, path(), set);
    if (count) return "";
    EXPECT_EQ(count.errors()[0].pointer, "/data/path");
    const std::string text = to_text(count.errors()[0]);
    return text.substr(text.rfind('/') + 1);
  }
  std::string kind;
};

TEST(ImageFiles, WhatIsWrittenIsReadAgain) {
  for (const std::string kind : {"mnist", "cifar10"}) {
    const Folder folder(kind);
    EXPECT_EQ(count_images(kind, folder.path(), "train").value(), 23) << kind;
    EXPECT_EQ(count_images(kind, folder.path(), "test").value(), 3) << kind;
    const ImageSet made = load_images(data(kind), 21).value();
    const ImageSet read = load_images(data(kind, folder.path()), 21).value();
    EXPECT_EQ(made.labels, read.labels) << kind;
    EXPECT_EQ(made.pixels, read.pixels) << kind;
    EXPECT_EQ(read.pixels.size(), static_cast<size_t>(21 * read.shape.pixels()));
    const ImageSet test = load_images(data(kind, folder.path(), "test"), 3).value();
    EXPECT_NE(test.pixels, load_images(data(kind), 3).value().pixels) << kind;
  }
}

TEST(ImageFiles, TheirLayoutIsThePublishedOne) {
  const Folder mnist("mnist", 3);
  std::ifstream file(mnist.file("train-images-idx3-ubyte"), std::ios::binary);
  char header[16];
  file.read(header, 16);
  EXPECT_EQ(std::string(header, 16), std::string("\0\0\10\3\0\0\0\3\0\0\0\34\0\0\0\34", 16));
  EXPECT_EQ(std::filesystem::file_size(mnist.file("train-images-idx3-ubyte")), 16 + 3 * 784U);
  EXPECT_EQ(std::filesystem::file_size(mnist.file("train-labels-idx1-ubyte")), 8 + 3U);
  const Folder cifar("cifar10", 10);
  EXPECT_EQ(std::filesystem::file_size(cifar.file("data_batch_5.bin")), 2 * 3073U);
  EXPECT_EQ(std::filesystem::file_size(cifar.file("test_batch.bin")), 3073U);
}

TEST(ImageFiles, MnistFilesThatAreWrongAreNamedWithWhatIsWrong) {
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  EXPECT_EQ(Folder("mnist").error(), "");
  {
    const Folder folder("mnist");
    std::filesystem::remove(folder.file(images));
    EXPECT_EQ(folder.error(), images + ": cannot be opened: No such file or directory");
    EXPECT_EQ(folder.error("test"), "");
  }
  {
    const Folder folder("mnist");
    std::filesystem::resize_file(folder.file(images), 18'047);
    EXPECT_EQ(folder.error(), images +
                                  ": has 18047 bytes, fewer than its header says; expected "
                                  "18048 bytes for 23 samples");
    std::filesystem::resize_file(folder.file(images), 18'049);
    EXPECT_EQ(folder.error(), images +
                                  ": has 18049 bytes, more than its header says; expected "
                                  "18048 bytes for 23 samples");
    std::filesystem::resize_file(folder.file(images), 7);
    EXPECT_EQ(folder.error(), images + ": has 7 bytes, no IDX header; expected at least 16 bytes");
  }
  {
    const Folder folder("mnist");
    folder.put(images, 0, 0x1f);
    EXPECT_EQ(folder.error(), images +
                                  ": starts with 0x1f000803; expected 0x00000803 (unpacked, "
                                  "not gzip)");
  }
  {
    const Folder folder("mnist");
    folder.put(images, 11, 32);
    EXPECT_EQ(folder.error(), images + ": has images of size 32; expected 28");
  }
  {
    const Folder folder("mnist");
    folder.put(labels, 8 + 5, 10);
    EXPECT_EQ(folder.error(), labels + ": label 10 of sample 5; expected a label from 0 to 9");
    std::filesystem::copy_file(folder.file("t10k-labels-idx1-ubyte"), folder.file(labels),
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(folder.error(), labels + ": has 3 labels; expected 23, one for each image");
  }
}

TEST(ImageFiles, CifarFilesThatAreWrongAreNamedWithWhatIsWrong) {
  const Folder folder("cifar10");
  folder.put("data_batch_2.bin", 3073, 200);
  EXPECT_EQ(folder.error(),
            "data_batch_2.bin: label 200 of sample 1; expected a label from 0 to 9");
  std::filesystem::resize_file(folder.file("data_batch_2.bin"), 3072);
  EXPECT_EQ(folder.error(), "data_batch_2.bin: has 3072 bytes; expected a multiple of 3073");
  std::filesystem::remove(folder.file("data_batch_2.bin"));
  EXPECT_EQ(folder.error(), "data_batch_2.bin: cannot be opened: No such file or directory");
}

TEST(ImageFiles, MoreSamplesThanThereAreIsAnError) {
  const Folder folder("mnist");
  EXPECT_TRUE(load_images(data("mnist", folder.path()), 23));
  const auto more = load_images(data("mnist", folder.path()), 24);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.errors()[0].allowed, "at least 24");
}

TEST(ImageFiles, NothingIsWrittenOver) {
  const Folder folder("mnist");
  const auto again = write_images("mnist", folder.path(), 5, 0);
  ASSERT_FALSE(again);
  EXPECT_EQ(count_images("mnist", folder.path(), "train").value(), 23);
  EXPECT_TRUE(write_images("cifar10", folder.path() + "/new/folder", 5, 0));
  EXPECT_FALSE(write_images("cifar10", folder.file("train-labels-idx1-ubyte"), 5, 0));
}

}  // namespace

}  // namespace lockstep
