#include "reducer/shard_tree.h"

namespace lockstep {
namespace {

ShardRange range_of(ShardNode node, int64_t shards) {
  return {node.index << node.level, std::min((node.index + 1) << node.level, shards)};
}

void collect(ShardNode node, ShardRange wanted, int64_t shards, std::vector<ShardNode>* found) {
  const ShardRange own = range_of(node, shards);
  if (own.begin >= wanted.end || own.end <= wanted.begin) return;
  if (own.begin >= wanted.begin && own.end <= wanted.end) return found->push_back(node);
  collect({node.level - 1, node.index * 2}, wanted, shards, found);
  collect({node.level - 1, node.index * 2 + 1}, wanted, shards, found);
}

}  // namespace

ShardRange shards_of_rank(int64_t shards, int64_t world_size, int64_t rank) {
  return {rank * shards / world_size, (rank + 1) * shards / world_size};
}

ShardNode top_of(int64_t shards) {
  ShardNode top;
  while (int64_t{1} << top.level < shards) ++top.level;
  return top;
}

std::vector<ShardNode> roots_of(ShardRange range, int64_t shards) {
  std::vector<ShardNode> found;
  collect(top_of(shards), range, shards, &found);
  return found;
}

int64_t most_roots(int64_t shards, int64_t world_size) {
  size_t most = 0;
  for (int64_t rank = 0; rank < world_size; ++rank)
    most = std::max(most, roots_of(shards_of_rank(shards, world_size, rank), shards).size());
  return static_cast<int64_t>(most);
}

bool is_one_addition(int64_t world_size, int64_t most_roots) {
  return world_size == 2 && most_roots == 1;
}

}  // namespace lockstep
