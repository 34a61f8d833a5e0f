#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// A fourth lot of what jobs of strangers printed, of schedulers, launchers and devices that the
// others lack: the needed lines with the numbers of the thread. A rank before a traceback is ours
// where the thread is older than that.

std::string raised_alone(const std::string& before, const std::string& last) {
  return before + "Traceback (most recent call last):\n" + before +
         "  File \"train.py\", line 12, in step\n" + before + last + "\n";
}

std::string failed_of(int64_t rank, int64_t code) {
  return fmt::format(
      "[{}]:\n  time      : 2023-05-19_16:39:58\n  host      : node\n  rank      : {} (local_rank: "
      "{})\n  exitcode  : {} (pid: 78971)\n",
      rank, rank, rank, code);
}

std::string failed_table(const std::string& others, int64_t root, int64_t code) {
  return "Failures:\n" + others + "Root Cause (first observed failure):\n" + failed_of(root, code);
}

std::string watchdog_of(int64_t rank, const std::string& what, int64_t timeout_ms, int64_t ran_ms) {
  return fmt::format(
      "[rank{}]:[E126 01:17:58.183429932 ProcessGroupNCCL.cpp:616] [Rank {}] Watchdog caught "
      "collective operation timeout: WorkNCCL(SeqNum={}, Timeout(ms)={}) ran for {} milliseconds "
      "before timing out.\n",
      rank, rank, what, timeout_ms, ran_ms);
}

std::string agent_saw(int64_t code, int64_t local) {
  return fmt::format(
      "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: {}) local_rank: {} "
      "(pid: 1211) of binary: /usr/bin/python3\n",
      code, local);
}

const std::string kLossScale = "FloatingPointError: Minimum loss scale reached (0.0001).";
const std::string kSpawnedTwo = "-- Process 2 terminated with the following error:\n";
const std::string kCompletion =
    "NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with status=12 opcode=129 "
    "len=65536 vendor err 129 (Recv)\n";

std::vector<PublicLog> by_schedulers() {
  return {
      {"idaholab/raven#83", "=>> PBS: job killed: walltime 602 exceeded limit 600\n"},
      {"PaddlePaddle/Paddle#13288",
       "mpirun noticed that process rank 140 with PID 363 on node 10.87.102.19 exited on signal 9 "
       "(Killed).\n",
       {140}},
      {"pmodels/mpich#7569",
       "x4006c0s6b0n0.hsn.cluster: rank 256 died from signal 11\nx4001c5s4b0n0.hsn.cluster: rank 0 "
       "died from signal 15\n",
       {256}},
      {"pmodels/mpich#7605",
       "x4213c4s7b0n0.hsn.cluster: rank 27421 died from signal 6\nx4417c3s5b0n0.hsn.cluster: rank "
       "48109 died from signal 15\n"},
      {"microsoft/FedDrift#30", "application called MPI_Abort(MPI_COMM_WORLD, 0) - process 0\n"},
      {"aws/amazon-sagemaker-examples#3827",
       "MPI_ABORT was invoked on rank 2 in communicator MPI COMMUNICATOR 5 DUP FROM 0\nwith "
       "errorcode 1.\n"},
      {"facebookresearch/ParlAI#3084",
       "srun: error: slurm-job-compute-0-0: tasks 2-7: Exited with exit code 1\nsrun: error: "
       "slurm-job-compute-0-1: tasks 8-13,15: Exited with exit code 1\n"},
      {"kubeflow/trainer#2008",
       "1.7085e+09\tDEBUG\tevents\tPod: kubeflow.pytorch-simple-worker-0 exited with code 1\n"},
      {"modelscope/ms-swift#64",
       " 16%|#6   | 4084/25120 [3:02:22<16:20:02,  2.80s/it]"
       "WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down "
       "workers\n"},
      {"NVIDIA/nvidia-resiliency-ext#18",
       "W0227 17:39:41.936000 293817 site-packages/torch/distributed/elastic/agent/server/api.py:"
       "719] Received 15 death signal, shutting down workers\n"},
      {"OpenMOSS/MOSS#237",
       "--- Logging error ---\n" +
           raised_alone("",
                        "torch.distributed.elastic.multiprocessing.api.SignalException: Process "
                        "2890585 got signal: 1")},
      {"determined-ai/determined#8915",
       "[2024-02-27T21:35:28.893536Z] fa88a9df [rank=4] ||   what():  [Rank 4] Watchdog caught "
       "collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLGATHER, Timeout(ms)=1800000) "
       "ran "
       "for 1804782 milliseconds before timing out.\n[2024-02-27T21:35:28.893559Z] fa88a9df "
       "[rank=4] || Fatal Python error: Aborted\n"},
  };
}

std::vector<PublicLog> by_agents() {
  return {
      {"Facico/Chinese-Vicuna#113", agent_saw(1, 0) + failed_table("", 0, 1)},
      {"Vision-CAIR/MiniGPT-4#237", failed_table(failed_of(1, 1), 0, 1)},
      {"deepinsight/insightface#2182",
       failed_table(failed_of(1, 1) + failed_of(2, 1) + failed_of(3, 1), 0, 1)},
      {"open-mmlab/mmpretrain#1837", failed_table("", 0, -6)},
      {"alinlab/ifseg#7", agent_saw(-11, 0)},
      {"hpcaitech/ColossalAI#3595", agent_saw(-9, 6)},
      {"XiaohangZhan/deocclusion#45",
       agent_saw(1, 6) + "INFO:torch.distributed.elastic.agent.server.api:[default] Worker group "
                         "FAILED. 3/3 attempts left; will restart worker group\n"},
      {"axolotl-ai-cloud/axolotl#1813",
       "E0821 08:02:52.165000 139948239349568 torch/distributed/elastic/multiprocessing/api.py:826]"
       "\n failed (exitcode: 1) local_rank: 1 (pid: 4638) of binary: python3\n"},
      {"tatsu-lab/stanford_alpaca#65",
       "[E ProcessGroupNCCL.cpp:828] [Rank 0] Watchdog caught collective operation timeout: "
       "WorkNCCL(SeqNum=2778, OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1801649 "
       "milliseconds before timing out.\n" +
           agent_saw(-6, 0)},
      // A label of a node's launcher, before the words of one of its ranks.
      {"pytorch/pytorch#135486",
       "0: Fatal Python error: Segmentation fault\n0: E0909 14:03:50.013000 22579 "
       "torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: -11) local_rank: 0 "
       "(pid: 2128869) of binary: python\n"},
      {"resistzzz/Prompt4NR#3",
       "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal "
       "SIGKILL\n"},
      {"deepspeedai/DeepSpeed#4890",
       "[I ProcessGroupWrapper.cpp:562] [Rank 2] Running collective: CollectiveFingerPrint("
       "SequenceNumber=1276, OpType=ALLREDUCE, TensorShape=[])\n[2023-12-29 10:00:00,982] [ERROR] "
       "[launch.py:321:sigkill_handler] ['python3', '--local_rank=3'] exits with return code = "
       "-9\n"},
      {"ray-project/ray#47461",
       "(raylet) A worker died or was killed while executing a task by an unexpected system "
       "error.\n"
       "(TorchTrainer pid=89392) Worker 0 has failed.\n"},
      {"hkust-nlp/simpleRL-reason#8",
       "(raylet) A worker died or was killed while executing a task by an unexpected system error. "
       "Worker exit type: SYSTEM_ERROR\n"},
      {"ray-project/ray#40850",
       "ray.exceptions.RayTaskError(RuntimeError): ray::_Inner.train() (pid=83344, "
       "ip=192.168.0.107, repr=TorchTrainer)\n"},
  };
}

std::vector<PublicLog> of_numbers() {
  return {
      {"facebookresearch/fairseq#1529", kSpawnedTwo + raised_alone("", kLossScale)},
      {"facebookresearch/fairseq#1895", raised_alone("[rank0]: ", kLossScale)},
      {"facebookresearch/fairseq#3185", raised_alone("", kLossScale)},
      {"ymcui/Chinese-LLaMA-Alpaca#534",
       raised_alone("[rank0]: ",
                    "Exception: Current loss scale already at minimum - cannot decrease scale "
                    "anymore. Exiting run.")},
      {"made up",
       "-- Process 1 terminated with the following error:\n" +
           raised_alone("", "FloatingPointError: Loss became infinite or NaN at iteration=620!")},
      {"open-mmlab/mmsegmentation#3737",
       "[rank0]: Traceback (most recent call last):\n[rank0]:   File "
       "\"torch/nn/parallel/distributed.py\", line 1528, in _pre_forward\n[rank0]: RuntimeError: "
       "Expected to have finished reduction in the prior iteration before starting a new one. You "
       "can enable unused parameter detection by passing the keyword argument to "
       "`torch.nn.parallel.DistributedDataParallel`\n"},
      {"huggingface/trl#2996",
       raised_alone("", "RuntimeError: CUDA error: device-side assert triggered")},
      {"Lightning-AI/litgpt#303",
       raised_alone("",
                    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 564.00 "
                    "MiB. GPU 1 has a total capacty of 22.20 GiB") +
           "[E ProcessGroupNCCL.cpp:456] [Rank 3] Watchdog caught collective operation timeout: "
           "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800558 "
           "milliseconds before timing out.\n"},
      {"huggingface/accelerate#157",
       raised_alone("",
                    "RuntimeError: Timed out initializing process group in store based barrier "
                    "on rank: 6, for key: store_based_barrier_key:1 (world_size=8)")},
      {"hpcaitech/Open-Sora#815",
       raised_alone("[rank0]: ",
                    "RuntimeError: DataLoader worker (pid(s) 8864) exited unexpectedly"),
       {0}},
      {"mila-iqia/milabench#281",
       raised_alone("diffusion-nodes.cn-n001.nolog [stderr] [rank11]: ",
                    "FileNotFoundError: No such file or directory: \"/cache/unet/x.safetensors\""),
       {11}},
  };
}

std::vector<PublicLog> of_devices() {
  return {
      {"ROCm/legacy-rocm-build#4021",
       " 41%|####   | 366/903 [5:15:39<6:53:09, 46.16s/it]HW Exception by GPU node-9 (Agent "
       "handle: "
       "0x631351bb5a20) reason :GPU Hang\nHW Exception by GPU node-9 (Agent handle: "
       "0x64ff272d8ab0) "
       "reason :GPU Hang\nAborted (core dumped)\n"},
      {"vllm-project/vllm-ascend#1443",
       "(train pid=8464) EI0002: [PID: 13075] 2025-06-25-10:45:23.586.187 The wait execution of "
       "the "
       "Notify register times out. Reason: The Notify register has not received the Notify record "
       "from remote rank: [unknown].\n"},
      {"hiyouga/LlamaFactory#5071",
       "EI0006: 2024-08-05-18:15:21.270.506 Getting socket times out. Reason: Remote Rank did not "
       "send the data in time.\n"},
      {"NVIDIA/nccl#1814", "hostname-test:984:1357 [4] ib_plugin.c:1615 " + kCompletion},
      {"NVIDIA/nccl#1405", "kp-ddp-worker-0:3468:3905 [4] ib_plugin.c:1615 " + kCompletion},
      {"scitix/sichek#44",
       "[2026-01-04 21:33:04] test-master-0:617:2799 [3] transport/net_ib.cc:2360 " + kCompletion},
      {"horovod/horovod#1950",
       "[1,7]<stderr>:*** Aborted at 1589462113 (unix time) try \"date -d @1589462113\" ***\n"},
      {"meta-pytorch/monarch#871",
       "*** Signal 6 (SIGABRT) (0x8bb63000c0dfd) received by PID 790013 (pthread TID 0x7f7) "
       "(code: -6), stack trace: ***\n"},
      {"pytorch/pytorch#90549",
       "terminate called without an active exception\nSIGABRT(6), PID: 2450054, Thread 2450054: "
       "\n"},
      {"pytorch/pytorch#72086", "Fatal Python error: Segmentation fault\n"},
      {"karpathy/nanoGPT#98", "[129-213-18-253:70544] Signal: Segmentation fault (11)\n"},
      {"pytorch/pytorch#58155",
       "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: "
       "uncorrectable NVLink error detected during the execution\n"},
      {"pytorch/pytorch#152780",
       "[rank0]:[E504 23:32:59.338859795 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) "
       "Rank 0] Process group watchdog thread terminated with exception: CUDA error: an illegal "
       "memory access was encountered\n",
       {0}},
  };
}

std::vector<PublicLog> of_watchdogs() {
  return {
      {"mit-han-lab/distrifuser#6",
       "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! "
       "workMetaList_.size()=0\n[rank0]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 0] Heartbeat "
       "monitor timed out! workMetaList_.size()=0\n"},
      {"modelscope/FunASR#2006",
       "[rank11]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 11] Timeout at NCCL work: 15734, last "
       "enqueued NCCL work: 15735, last completed NCCL work: 15733.\n"},
      {"fudan-generative-vision/hallo#224",
       watchdog_of(2, "5, OpType=ALLGATHER, NumelIn=1, NumelOut=4", 1800000, 1800650)},
      {"ACEsuit/mace#567",
       watchdog_of(0, "10260, OpType=ALLREDUCE, NumelIn=207488", 600000, 933936) +
           watchdog_of(1, "10260, OpType=ALLREDUCE, NumelIn=207488", 600000, 934056)},
      {"lsdefine/simple_GRPO#46",
       "1021/100000 [45:39<51:20:53,  1.87s/it]" +
           watchdog_of(2, "45390, OpType=ALLREDUCE, NumelIn=544997376", 600000, 600061)},
      {"mlcommons/training#546",
       "[E ProcessGroupNCCL.cpp:587] [Rank 4] Watchdog caught collective operation timeout: "
       "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1809150 milliseconds before timing "
       "out.\nRuntimeError: NCCL communicator was aborted on rank 2.\n"},
      {"NVlabs/Sana#206",
       watchdog_of(3, "327117, OpType=BROADCAST, NumelIn=2984960", 600000, 600092)},
      {"MIV-XJTU/JanusVLN#22",
       watchdog_of(5, "18590, OpType=_ALLGATHER_BASE, NumelIn=4194304", 1800000, 1800062)},
      {"mlfoundations/open_clip#1024",
       watchdog_of(7, "14217, OpType=ALLGATHER, NumelIn=65536", 600000, 600002) +
           watchdog_of(5, "14217, OpType=ALLGATHER, NumelIn=65536", 600000, 600002)},
      {"Lightning-AI/pytorch-lightning#20434",
       watchdog_of(3, "1, OpType=BROADCAST, NumelIn=1, NumelOut=1", 1800000, 1800000)},
      {"pytorch/pytorch#140969",
       "Not all ranks joining collective: sequence number: 31117\ncollective: nccl:all_reduce\n"
       "missing ranks: {3, 4, 5, 6, 7}\n"},
  };
}

TEST(PublicEnds, SchedulersNameWhomASignalEnded) { expect_as_written(by_schedulers()); }

TEST(PublicEnds, AgentsNameNobodyByANodesNumber) { expect_as_written(by_agents()); }

TEST(PublicEnds, NumbersThatAllRanksShareNameNobody) { expect_as_written(of_numbers()); }

TEST(PublicEnds, DevicesNameWhoseTheyAre) { expect_as_written(of_devices()); }

TEST(PublicEnds, WatchdogsNameNobodyEither) { expect_as_written(of_watchdogs()); }

TEST(PublicEnds, ThereAreSixtyOfThem) {
  const size_t all = by_schedulers().size() + by_agents().size() + of_numbers().size() +
                     of_devices().size() + of_watchdogs().size();
  EXPECT_GE(all, 60U);
}

}  // namespace
}  // namespace lockstep
