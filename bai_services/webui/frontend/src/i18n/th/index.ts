// The texts of reasons are also those of the Hub's pages and of JupyterLab.
import reasons from '../../../../../i18n/th/reasons.json';
import { textsOf } from '../areas';

export default {
  ...textsOf(
    import.meta.glob<Record<string, string>>('./*.json', { eager: true, import: 'default' })
  ),
  reasons
};
