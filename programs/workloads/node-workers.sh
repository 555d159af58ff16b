# Node.js sorts in four worker threads, and collects garbage
# package: nodejs
mark=/workload/mark; test -x $mark || mark=true
cat > /tmp/work.js <<'END'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
if (isMainThread) {
  const results = [];
  for (let i = 0; i < 4; i++)
    new Worker(__filename, { workerData: i }).on('message', (m) => {
      results[i] = m;
      if (Object.keys(results).length === 4) console.log(results.join(' '));
    });
} else {
  let seed = workerData + 1;
  const random = () => (seed = (seed * 48271) % 2147483647);
  let sum = 0;
  for (let round = 0; round < 3; round++) {
    const list = Array.from({ length: 60000 }, () => ({ key: random(), text: 'x'.repeat(round + 5) }));
    list.sort((a, b) => a.key - b.key);
    sum += list[1000].key % 1000;
  }
  parentPort.postMessage(sum);
}
END
$mark begin 1
node /tmp/work.js || exit
$mark end 1
