# Java with the G1 collector fills and drops a map of strings
# package: default-jdk-headless
javac -d /tmp programs/workloads/data/Fill.java
java -XX:+UseG1GC -Xmx160m -cp /tmp Fill
