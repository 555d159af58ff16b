# Java with the Z collector fills and drops a map of strings
# package: default-jdk-headless
mark=/workload/mark; test -x $mark || mark=true
javac -d /tmp "${0%/*}/data/Fill.java" || exit
$mark begin 1
java -XX:+UseZGC -Xmx160m -cp /tmp Fill || exit
$mark end 1
