import { App } from 'antd';
import { useTranslation } from 'react-i18next';
import { useFolderStep, type Folder } from '../../data/folders/folders';
import { LostModels } from './LostModels';

/** Moves a folder to the trash after a confirmation, which names the models in the folder. */
export function useTrashFolder() {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const step = useFolderStep();
  return (folder: Folder, onTrashed: () => void = () => undefined) => {
    modal.confirm({
      title: t('data.trash-one', { name: folder.name }),
      content: (
        <>
          <p>{t('data.trash-help')}</p>
          <LostModels folders={[folder]} />
        </>
      ),
      okText: t('data.trash'),
      onOk: async () => {
        const [failure] = await step.mutateAsync({ folders: [folder], step: 'trash' });
        if (failure) {
          void message.error(failure.error.message);
        } else {
          onTrashed();
        }
      }
    });
  };
}
