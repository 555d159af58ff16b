# Do forks, pipes, threads, and 64 MiB of small values work in Debian's Perl? Prints checksums that no schedule changes.
use strict;
use warnings;
use threads;
use threads::shared;

sub numbers {
    my ($seed, $count) = @_;
    my @numbers;
    for (1 .. $count) {
        $seed = ($seed * 1103515245 + 12345) % 2147483648;
        push @numbers, $seed;
    }
    return @numbers;
}

sub check {
    my $sum = 0;
    $sum = ($sum * 31 + $_) % 4294967291 for @_;
    return $sum;
}

sub children {
    my @children;
    for my $child (0 .. 3) {
        pipe my $ours, my $theirs or die "pipe: $!";
        my $id = fork;
        die "fork: $!" unless defined $id;
        if ($id == 0) {
            close $ours;
            print $theirs "$_\n" for numbers($child, 20000);
            close $theirs;
            exit $child;
        }
        close $theirs;
        push @children, [$id, $ours];
    }
    for (@children) {
        my ($id, $ours) = @$_;
        my @lines = <$ours>;
        waitpid $id, 0;
        print "child ", scalar @lines, " ", check(@lines), " ", $? >> 8, "\n";
    }
}

sub threads_of_perl {
    my $total : shared = 0;
    my $work = sub {
        my ($index) = @_;
        my @ordered = sort { $a <=> $b } numbers(100 + $index, 5000);
        for (1 .. 100) {
            lock $total;
            $total++;
        }
        return check(@ordered);
    };
    my @pool = map { threads->create($work, $_) } 0 .. 3;
    my @results = map { $_->join } @pool;
    print "threads $total @results\n";
}

sub values_of_perl {
    # Some 64 MiB: a hash of arrays.
    my %table;
    for my $number (numbers(7, 150000)) {
        $table{"entry $number"} = [$number, $number * 2.5, "text $number"];
    }
    my @keys = sort keys %table;
    print "values ", scalar @keys, " ", check(map { $table{$_}[0] } @keys), "\n";
    my $block = "\0" x (64 << 20);
    substr($block, $_ << 12, 1) = chr($_ & 255) for 0 .. 16383;
    print "block ", check(unpack 'C*', join '', map { substr $block, $_ << 12, 1 } 0 .. 16383), "\n";
}

$| = 1;
children();
threads_of_perl();
values_of_perl();
