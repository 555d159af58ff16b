# Java with the Z collector fills and drops a map of strings
# package: default-jdk-headless
javac -d /tmp programs/workloads/data/Fill.java
java -XX:+UseZGC -Xmx160m -cp /tmp Fill
