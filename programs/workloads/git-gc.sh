# git creates a repository of 400 files with 30 commits, and packs it
# package: git
mark=/workload/mark; test -x $mark || mark=true
cd /tmp
git init -q tree 2>/dev/null
cd tree
git config user.email nobody@example.org
git config user.name nobody
for file in $(seq 400); do seq $file $((file + 200)) > file$file; done
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
git add .
git commit -qm start
for commit in $(seq 30); do
	seq $commit 7 9000 > file$commit
	git commit -qam "change $commit"
done
$mark begin 1
git -c gc.auto=0 gc -q
$mark end 1
git log --format=%h | tail -n 1
git count-objects -v | grep -E 'count|in-pack'
git fsck 2>&1 | tail -n 1
