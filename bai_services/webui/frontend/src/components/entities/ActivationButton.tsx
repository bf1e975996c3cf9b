import { App, Button, Popconfirm } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSaveEntity, type Item } from '../../data/entities';
import { actionText, idOf, nameOf, type Entity } from './entity';

/** Deactivate an active object, or activate an inactive one. */
export function ActivationButton({ entity, item }: { entity: Entity; item: Item }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const save = useSaveEntity(entity.path);
  const { activation } = entity;
  if (activation === undefined) {
    return null;
  }
  const { key, on, off } = activation;
  const isActive = item[key] === on;
  const action = isActive ? 'deactivate' : 'activate';
  return (
    <Popconfirm
      title={actionText(t, entity, `${action}-title`, { name: nameOf(entity, item) })}
      description={isActive && t(`${entity.name}.deactivate-warning`, '')}
      okText={actionText(t, entity, action)}
      cancelText={t('entities.cancel')}
      onConfirm={() =>
        save.mutate(
          { key: idOf(entity, item), values: { [key]: isActive ? off : on } },
          { onError: error => void message.error(error.message) }
        )
      }
    >
      <Button loading={save.isPending}>{actionText(t, entity, action)}</Button>
    </Popconfirm>
  );
}
