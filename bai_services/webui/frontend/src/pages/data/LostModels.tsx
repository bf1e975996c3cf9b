import { Alert } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { UserText } from '../../components/UserText';
import type { Folder } from '../../data/folders/folders';
import { modelsInQuery } from '../../data/serving/models';

/** Warning with the models of the model store whose files are in the folders. */
export function LostModels({ folders }: { folders: Folder[] }) {
  const { t } = useTranslation();
  // Only folders of projects contain models of the model store.
  const ids = folders.filter(({ project }) => project !== null).map(({ id }) => id);
  const { data } = useQuery({ ...modelsInQuery(ids), enabled: ids.length > 0 });
  if (!data || data.total === 0) {
    return null;
  }
  const rest = data.total - data.items.length;
  return (
    <Alert
      type="warning"
      showIcon
      title={t('data.lost-models', { count: data.total })}
      description={
        <ul>
          {data.items.map(({ id, title, name, version }) => (
            <li key={id}>
              <UserText text={`${title || name} ${version}`} />
            </li>
          ))}
          {rest > 0 && <li>{`+ ${rest}`}</li>}
        </ul>
      }
    />
  );
}
