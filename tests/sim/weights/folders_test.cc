#include "sim/weights/folders.h"

#include "sim/weights/export_folder.h"
#include "tests/sim/weights/made.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Folders : public testing::FolderTest {};

TEST_F(Folders, PairsByRelativeNameInOrderOfNumbers) {
  for (const char* name : {"a/step-2/rank-0.pt", "a/step-10/rank-0.pt", "a/step-10/rank-1.pt",
                           "a/notes.txt", "a/only.safetensors", "b/step-2/rank-0.pt",
                           "b/step-10/rank-0.safetensors", "b/step-10/rank-1.pt", "b/new.pth"})
    write(name, "x");
  const auto pairs = pair_files(folder_ + "/a", folder_ + "/b");
  ASSERT_TRUE(pairs);
  std::vector<std::string> found;
  for (const FilePair& pair : pairs.value())
    found.push_back(pair.name + (pair.a.empty() ? " b" : pair.b.empty() ? " a" : ""));
  EXPECT_THAT(found, ElementsAre("new.pth b", "only.safetensors a", "step-2/rank-0.pt",
                                 "step-10/rank-0.pt", "step-10/rank-1.pt"));
  EXPECT_THAT(pairs.value()[3].b, HasSubstr("b/step-10/rank-0.safetensors"));
}

TEST_F(Folders, BadInput) {
  write("a/x.pt", "x");
  std::filesystem::create_directory(folder_ + "/empty");
  EXPECT_FALSE(pair_files(folder_ + "/a", folder_ + "/a/x.pt"));
  EXPECT_FALSE(pair_files(folder_ + "/a", folder_ + "/absent"));
  EXPECT_FALSE(pair_files(folder_ + "/a", folder_ + "/empty"));
  EXPECT_TRUE(pair_files(folder_ + "/a/x.pt", folder_ + "/a/x.pt"));
}

TEST_F(Folders, AnExportHasPyTorchsNames) {
  const std::string header = "\x93NUMPY\x01" + std::string("\0\x06\0{'a'}\n", 9);
  const auto array = [&](const std::string& name, auto value) {
    write("e/" + name, header + std::string(reinterpret_cast<const char*>(&value), sizeof value));
  };
  array("p.npy", 1.5F);
  array("m.npy", 2.5F);
  array("s.npy", int64_t{7});
  array("l.npy", int64_t{16});
  const std::string f = R"("dtype":"float32","shape":[1])", i = R"("dtype":"int64","shape":[1])";
  write("e/manifest.json", R"({"final":{"parameters":[{"name":"fc.weight","file":"p.npy",)" + f +
                               R"(}],"buffers":[{"name":"none","file":null}],"optimizer_state":[
      {"name":"fc.weight.loss_scale_log2","file":"l.npy",)" +
                               i + R"(},{"name":"fc.weight.exp_avg","file":"m.npy",)" + f +
                               R"(},{"name":"fc.weight.step","file":"s.npy",)" + i + "}]}}");
  const auto state = read_export(folder_ + "/e");
  ASSERT_TRUE(state) << to_text(state.errors().front());
  Checkpoint checkpoint;
  checkpoint.tensors = state.value().tensors;
  EXPECT_THAT(testing::names_of(checkpoint),
              ElementsAre("state_dict/fc.weight", "other_state/fc.weight.loss_scale_log2",
                          "optimizer/state/0/exp_avg", "optimizer/state/0/step"));
  EXPECT_THAT(testing::values_of<float>(checkpoint.tensors[3]), ElementsAre(7));
  EXPECT_THAT(testing::values_of<float>(checkpoint.tensors[2]), ElementsAre(2.5F));
  EXPECT_TRUE(checkpoint.tensors[3].shape.empty());
  array("p.npy", uint8_t{0});
  EXPECT_FALSE(read_export(folder_ + "/e"));
  EXPECT_FALSE(read_export(folder_ + "/absent"));
}

TEST_F(Folders, ASavedFileReplacesAnotherInOneStep) {
  testing::Tensors made;
  made.floats("state_dict/w", {1}, {1});
  const std::string path = write("w.safetensors", "old");
  save_checkpoint(path, made.all());
  EXPECT_EQ(testing::read_whole(path), safetensors_bytes(made.all()));
  EXPECT_THROW(save_checkpoint("/nowhere/w.pt", made.all()), std::runtime_error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_EQ(why_no_checkpoint_name("a.pt"), "");
  EXPECT_NE(why_no_checkpoint_name("a.bin"), "");
}

}  // namespace
}  // namespace lockstep
