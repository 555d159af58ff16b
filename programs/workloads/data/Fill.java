import java.util.HashMap;
public class Fill {
  public static void main(String[] words) {
    long sum = 0;
    for (int round = 0; round < 4; round++) {
      HashMap<Integer, byte[]> map = new HashMap<>();
      for (int i = 0; i < 40000; i++) map.put(i * 7919 % 60013, new byte[i % 1500]);
      for (byte[] one : map.values()) sum += one.length;
    }
    System.out.println(sum);
  }
}
