# PHP builds, sorts and serialises an array of 150,000 strings
# package: php-cli
php -n -r '
ini_set("memory_limit", "-1");
$all = [];
for ($i = 0; $i < 150000; $i++) $all["k" . ($i * 7919 % 150000)] = str_repeat("v", $i % 30);
ksort($all);
$text = serialize($all);
echo count(unserialize($text)), " ", strlen($text), " ", crc32($text), "\n";'
