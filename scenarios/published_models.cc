#include <fmt/format.h>

#include <utility>

#include "scenarios/manifest.h"

// Models that others publish times of, by their parameters and work alone. Names of parameters are
// those of torchvision and of Hugging Face's transformers.

namespace lockstep {

// Configuration D of Simonyan and Zisserman, "Very deep convolutional networks" (2015), of images
// of 224 x 224 pixels.
void describe_vgg16(const Options& options, ManifestBuilder& builder) {
  builder.begin_with_pixels();
  int64_t in = 3, place = 0;
  for (const auto& [channels, convolutions] :
       {std::pair<int64_t, int>{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}) {
    for (int i = 0; i < convolutions; ++i, place += 2) {
      builder.convolution(fmt::format("features.{}", place), in, channels, {3, 1, 1});
      in = channels;
    }
    builder.pool({2, 2});
    ++place;
  }
  builder.flatten();
  builder.linear("classifier.0", 512 * 7 * 7, 4096);
  builder.linear("classifier.3", 4096, 4096);
  builder.linear("classifier.6", 4096, options.integer("classes"));
  builder.shapes({3, 224, 224}, {options.integer("classes")});
}

// Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014), of images
// of 224 x 224 pixels.
void describe_alexnet(const Options& options, ManifestBuilder& builder) {
  builder.begin_with_pixels();
  builder.convolution("features.0", 3, 64, {11, 4, 2});
  builder.pool({3, 2});
  builder.convolution("features.3", 64, 192, {5, 1, 2});
  builder.pool({3, 2});
  builder.convolution("features.6", 192, 384, {3, 1, 1});
  builder.convolution("features.8", 384, 256, {3, 1, 1});
  builder.convolution("features.10", 256, 256, {3, 1, 1});
  builder.pool({3, 2});
  builder.flatten();
  builder.linear("classifier.1", 256 * 6 * 6, 4096);
  builder.linear("classifier.4", 4096, 4096);
  builder.linear("classifier.6", 4096, options.integer("classes"));
  builder.shapes({3, 224, 224}, {options.integer("classes")});
}

namespace {

// Szegedy and others, "Rethinking the Inception architecture for computer vision" (2016), of images
// of 299 x 299 pixels. Branches of a module all begin with its input.
class InceptionV3 {
 public:
  InceptionV3(const Options& options, ManifestBuilder& builder) : builder_(builder) {
    builder.begin_with_pixels();
    stem();
    for (const auto& [name, pooled] :
         {std::pair<const char*, int64_t>{"Mixed_5b.", 32}, {"Mixed_5c.", 64}, {"Mixed_5d.", 64}})
      narrow(name, pooled);
    shrink_to_17();
    for (const auto& [name, inner] : {std::pair<const char*, int64_t>{"Mixed_6b.", 128},
                                      {"Mixed_6c.", 160},
                                      {"Mixed_6d.", 160},
                                      {"Mixed_6e.", 192}})
      factorized(name, inner);
    if (options.flag("aux_logits")) auxiliary(options.integer("classes"));
    shrink_to_8();
    expanded("Mixed_7b.");
    expanded("Mixed_7c.");
    builder.flatten();
    builder.linear("fc", channels_, options.integer("classes"));
    builder.shapes({3, 299, 299}, {options.integer("classes")});
  }

 private:
  void normalize(const std::string& name, int64_t out) {
    builder_.norm(name + ".bn", out, "batch");
  }
  void square(const std::string& name, int64_t in, int64_t out, const Window& window) {
    builder_.convolution(name + ".conv", in, out, window, false);
    normalize(name, out);
  }
  // As many pixels as before.
  void stripe(const std::string& name, int64_t in, int64_t out, int64_t height, int64_t width) {
    builder_.stripe(name + ".conv", in, out, height, width);
    normalize(name, out);
  }
  void stem() {
    square("Conv2d_1a_3x3", 3, 32, {3, 2});
    square("Conv2d_2a_3x3", 32, 32, {3});
    square("Conv2d_2b_3x3", 32, 64, {3, 1, 1});
    builder_.pool({3, 2});
    square("Conv2d_3b_1x1", 64, 80, {1});
    square("Conv2d_4a_3x3", 80, 192, {3});
    builder_.pool({3, 2});
    channels_ = 192;
  }
  void narrow(const std::string& name, int64_t pooled) {
    square(name + "branch1x1", channels_, 64, {1});
    square(name + "branch5x5_1", channels_, 48, {1});
    square(name + "branch5x5_2", 48, 64, {5, 1, 2});
    square(name + "branch3x3dbl_1", channels_, 64, {1});
    square(name + "branch3x3dbl_2", 64, 96, {3, 1, 1});
    square(name + "branch3x3dbl_3", 96, 96, {3, 1, 1});
    square(name + "branch_pool", channels_, pooled, {1});
    channels_ = 64 + 64 + 96 + pooled;
  }
  void shrink_to_17() {
    const ManifestBuilder::Extent input = builder_.extent();
    square("Mixed_6a.branch3x3", channels_, 384, {3, 2});
    builder_.set_extent(input);
    square("Mixed_6a.branch3x3dbl_1", channels_, 64, {1});
    square("Mixed_6a.branch3x3dbl_2", 64, 96, {3, 1, 1});
    square("Mixed_6a.branch3x3dbl_3", 96, 96, {3, 2});
    channels_ += 384 + 96;
  }
  void factorized(const std::string& name, int64_t inner) {
    square(name + "branch1x1", channels_, 192, {1});
    square(name + "branch7x7_1", channels_, inner, {1});
    stripe(name + "branch7x7_2", inner, inner, 1, 7);
    stripe(name + "branch7x7_3", inner, 192, 7, 1);
    square(name + "branch7x7dbl_1", channels_, inner, {1});
    stripe(name + "branch7x7dbl_2", inner, inner, 7, 1);
    stripe(name + "branch7x7dbl_3", inner, inner, 1, 7);
    stripe(name + "branch7x7dbl_4", inner, inner, 7, 1);
    stripe(name + "branch7x7dbl_5", inner, 192, 1, 7);
    square(name + "branch_pool", channels_, 192, {1});
    channels_ = 4 * 192;
  }
  // Of training alone.
  void auxiliary(int64_t classes) {
    const ManifestBuilder::Extent input = builder_.extent();
    builder_.pool({5, 3});
    square("AuxLogits.conv0", channels_, 128, {1});
    square("AuxLogits.conv1", 128, 768, {5});
    builder_.flatten();
    builder_.linear("AuxLogits.fc", 768, classes);
    builder_.set_extent(input);
  }
  void shrink_to_8() {
    const ManifestBuilder::Extent input = builder_.extent();
    square("Mixed_7a.branch3x3_1", channels_, 192, {1});
    square("Mixed_7a.branch3x3_2", 192, 320, {3, 2});
    builder_.set_extent(input);
    square("Mixed_7a.branch7x7x3_1", channels_, 192, {1});
    stripe("Mixed_7a.branch7x7x3_2", 192, 192, 1, 7);
    stripe("Mixed_7a.branch7x7x3_3", 192, 192, 7, 1);
    square("Mixed_7a.branch7x7x3_4", 192, 192, {3, 2});
    channels_ += 320 + 192;
  }
  void expanded(const std::string& name) {
    square(name + "branch1x1", channels_, 320, {1});
    square(name + "branch3x3_1", channels_, 384, {1});
    stripe(name + "branch3x3_2a", 384, 384, 1, 3);
    stripe(name + "branch3x3_2b", 384, 384, 3, 1);
    square(name + "branch3x3dbl_1", channels_, 448, {1});
    square(name + "branch3x3dbl_2", 448, 384, {3, 1, 1});
    stripe(name + "branch3x3dbl_3a", 384, 384, 1, 3);
    stripe(name + "branch3x3dbl_3b", 384, 384, 3, 1);
    square(name + "branch_pool", channels_, 192, {1});
    channels_ = 320 + 4 * 384 + 192;
  }

  ManifestBuilder& builder_;
  int64_t channels_ = 0;  // of what comes next
};

}  // namespace

void describe_inception_v3(const Options& options, ManifestBuilder& builder) {
  InceptionV3(options, builder);
}

// Devlin and others, "BERT" (2019), with both heads of its pre-training. The decoder of words has
// no matrix of its own: it is the word embedding.
void describe_bert(const Options& options, ManifestBuilder& builder) {
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t width = options.integer("width");
  const std::string embeddings = "bert.embeddings.";
  builder.begin_with_tokens();
  const int64_t length = builder.places();
  builder.embedding(embeddings + "word_embeddings", vocabulary, width);
  builder.embedding(embeddings + "position_embeddings", options.integer("context"), width);
  builder.embedding(embeddings + "token_type_embeddings", 2, width);
  builder.norm(embeddings + "LayerNorm", width, "layer");
  for (int64_t i = 0; i < options.integer("layers"); ++i) {
    const std::string layer = fmt::format("bert.encoder.layer.{}.", i);
    for (const char* part : {"query", "key", "value"})
      builder.linear(layer + "attention.self." + part, width, width);
    builder.work(layer + "attention.self", 2 * length * length * width);
    builder.linear(layer + "attention.output.dense", width, width);
    builder.norm(layer + "attention.output.LayerNorm", width, "layer");
    builder.linear(layer + "intermediate.dense", width, 4 * width);
    builder.linear(layer + "output.dense", 4 * width, width);
    builder.norm(layer + "output.LayerNorm", width, "layer");
  }
  const ManifestBuilder::Extent tokens = builder.extent();
  builder.flatten();
  builder.linear("bert.pooler.dense", width, width);
  builder.set_extent(tokens);
  builder.own_bias("cls.predictions", vocabulary);
  builder.linear("cls.predictions.transform.dense", width, width);
  builder.norm("cls.predictions.transform.LayerNorm", width, "layer");
  builder.work("cls.predictions.decoder", length * width * vocabulary);
  builder.flatten();
  builder.linear("cls.seq_relationship", width, 2);
  builder.shapes({-1}, {-1, vocabulary}, vocabulary);
}

}  // namespace lockstep
