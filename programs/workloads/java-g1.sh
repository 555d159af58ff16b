# Java with the G1 collector fills and drops a map of strings
# package: default-jdk-headless
mark=/workload/mark; test -x $mark || mark=true
javac -d /tmp "${0%/*}/data/Fill.java" || exit
$mark begin 1
java -XX:+UseG1GC -Xmx160m -cp /tmp Fill || exit
$mark end 1
