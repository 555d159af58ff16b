# Perl counts and sorts the words of a generated text
# package: perl-base
perl -e '
my %count;
for my $i (1 .. 200000) { $count{"w" . ($i * 7919 % 30011)} .= chr(97 + $i % 26) }
my @all = sort { length($count{$b}) <=> length($count{$a}) || $a cmp $b } keys %count;
print scalar(@all), " $all[0] $all[-1]\n";'
