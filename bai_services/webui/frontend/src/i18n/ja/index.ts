import { textsOf } from '../areas';

export default textsOf(
  import.meta.glob<Record<string, string>>('./*.json', { eager: true, import: 'default' })
);
